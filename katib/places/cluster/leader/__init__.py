"""The active controller: leader election, the fence around other replicas' writes, and everything it runs.

Belongs here: the Lease, the fence, and the wiring of the leader's components. Does not belong here: the work of every
replica (webhooks, probes).
"""
