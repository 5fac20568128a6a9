"""JobSet and TrainJob: jobs made of batch Jobs.

Belongs here: the JobSet with its policies, training runtimes, how a TrainJob becomes a JobSet with them, and the
variables of the nodes of a TrainJob. Does not belong here: how one batch Job goes (`katib.places.machine.jobs.batch`),
the protocol of all kinds (`katib.places.machine.jobs.kind`), applying a plan (`katib.places.machine.jobs.controller`).
"""
