"""Listeners, certificates, and small HTTP servers.

Belongs here: sockets, TLS, the limits of a connection. Does not belong here: routes, users, experiments.
"""
