"""What both homes know of the services that suggest and stop: which there are, what they need, whether they are ready.

Belongs here: the catalog, its configuration and pure plans. Does not belong here: running a service
(`katib.places.machine.services`, `katib.places.cluster.services`) and what it says on the wire (`katib.wire.rpc`).
"""
