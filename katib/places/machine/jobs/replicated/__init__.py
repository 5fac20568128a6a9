"""Jobs of replicas with roles, as the Kubeflow training operator runs them (`kubeflow.org/v1`).

Belongs here: the common parts of these kinds (spec, gang, status, names, admission), and a class for each kind with
its own parts. Does not belong here: running pods, finding ports, writing the status (`katib.places.machine.jobs`).

Read in this order: `training_kind` (the protocol of a kind), `frameworks` (some kinds), `job` (the gang), `status`.
"""
