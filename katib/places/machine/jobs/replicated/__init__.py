"""Jobs of replicas with roles, as the Kubeflow training operator runs them (`kubeflow.org/v1`).

Belongs here: what all of these kinds share (spec, plan, status, names, admission), and a class for each kind with what
is its own. Does not belong here: running pods, finding ports, writing the status (`katib.places.machine.jobs`).

Read in this order: `training_kind` (what a kind has to say), `frameworks` (some kinds), `plan` (decides), `job`.
"""
