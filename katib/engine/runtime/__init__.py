"""A small controller runtime: object store protocol, informer, work queue, clock, controller, manager.

Belongs here: what any controller needs. Does not belong here: any kind of ours; this room imports only
`katib.errors` and could be a library of its own.
"""
