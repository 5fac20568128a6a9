"""A small controller runtime: object store protocol, informer, work queue, clock, controller, manager.

Belongs here: parts that any controller needs. Does not belong here: Katib's kinds; this room imports only
`katib.errors` and could be a library of its own.
"""
