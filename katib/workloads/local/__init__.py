"""A `batch/v1` Job as processes of this machine.

Belongs here: what the Job controller and the kubelet do for a Job on a cluster, done for process groups. Does not
belong here: trials and metrics (a `Monitor` reads the output), starting a single process (`katib.processes`).

Read in this order: `job_plan` decides (pure), `runner` applies, `pod` and `container` live on the one `loop` thread.
"""
