"""Object stores: in memory and in SQLite; both keep the semantics of the Kubernetes API.

Belongs here: keeping objects. Does not belong here: what any kind means, and time series of metrics.

Three layers, the upper two shared by all stores: `semantics` says what a write makes of one object, `transaction` what
it does to the others (owners, garbage), and each store brings rows to keep them in.
"""
