"""Jobs on this machine: the work of the controllers of jobs on a cluster.

Belongs here: from a Job's spec to the pods it needs and the conditions it gets. Does not belong here: running one pod
(`katib.places.machine.pods`), trials and metrics (a `Monitor` reads the output).

Read in this order: a kind decides (pure), `controller` applies, `dependencies` has its interfaces to trials.
"""
