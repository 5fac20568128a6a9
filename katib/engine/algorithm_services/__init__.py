"""Services of algorithms, as far as both homes share them: the catalog, start-up plans, and readiness.

Belongs here: the catalog, its configuration and pure plans. Does not belong here: running a service
(`katib.places.machine.services`, `katib.places.cluster.services`) and its protocol (`katib.wire.rpc`).
"""
