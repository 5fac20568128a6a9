"""The wire: generated stubs, conversion between objects and messages, clients, rendering of errors.

Belongs here: everything that speaks `api.v1.beta1`. Stays light (no SQLAlchemy, no numpy), because a pod's sidecar
imports it. Does not belong here: decisions.
"""
