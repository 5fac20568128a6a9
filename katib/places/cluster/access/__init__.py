"""The way of users into a cluster, with their own rights: the tuning service behind the commands and REST.

Belongs here: whatever answers a user from the objects, pods and metrics of a cluster. Does not belong here: what
acts on its own.
"""
