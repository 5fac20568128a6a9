"""`batch/v1` Job: the work of the Job controller of a cluster.

Belongs here: the spec with its defaults, counts over pods, the plan, and the labels and names of its pods. Does not
belong here: the protocol of all kinds (`katib.places.machine.jobs.kind`), applying a plan
(`katib.places.machine.jobs.controller`).
"""
