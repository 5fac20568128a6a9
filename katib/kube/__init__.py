"""The connection to a Kubernetes API server: configuration, raw requests in JSON, errors of our tree, discovery.

Belongs here: what any client of Kubernetes needs. Does not belong here: kinds of ours, caches, controllers.
"""
