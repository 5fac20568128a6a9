"""`batch/v1` Job: what the Job controller of a cluster does.

Belongs here: the spec with its defaults, counts over pods, the plan, and the labels and names of its pods. Does not
belong here: what all kinds share (`katib.places.machine.jobs.kind`), applying a plan
(`katib.places.machine.jobs.controller`).
"""
