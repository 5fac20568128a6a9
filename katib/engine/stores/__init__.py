"""The object store in SQLite, with the semantics of the Kubernetes API.

Belongs here: storing objects. Does not belong here: the meaning of any kind, and time series of metrics.

Three layers: `semantics` defines the effect of a write on one object, `transaction` its effect on others (owners,
garbage), and `sql` keeps the rows. Tests have a store in memory over the upper two.
"""
