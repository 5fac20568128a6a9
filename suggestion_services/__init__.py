"""Suggestion services: one process per algorithm, speaking `api.v1.beta1` to any Katib controller.

Belongs here: search and early stopping algorithms, and the server shell they run in. Does not belong here: anything
that knows controllers, stores or how a service is started. Begin with `algorithms.py`, the list.
"""
