"""Suggestion services: one process per algorithm, serving `api.v1.beta1` to any Katib controller.

Belongs here: search and early stopping algorithms, and the server that runs them. Does not belong here: code that
depends on controllers, stores or the way a service is started. Start reading at `algorithms.py`, the list.
"""
