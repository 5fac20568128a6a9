"""Object stores in memory and in SQLite, with the semantics of the Kubernetes API.

Belongs here: storing objects. Does not belong here: the meaning of any kind, and time series of metrics.

Three layers, the upper two shared by all stores: `semantics` defines the effect of a write on one object, `transaction`
its effect on others (owners, garbage), and each store provides rows to keep them in.
"""
