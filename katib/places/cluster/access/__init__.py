"""User access to a cluster with the user's own rights: the tuning service behind the commands and REST.

Belongs here: code that answers a user from the objects, pods and metrics of a cluster. Does not belong here: code that
acts without a request.
"""
