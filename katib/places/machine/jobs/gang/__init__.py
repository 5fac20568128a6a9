"""Gangs: pods with roles that start together, and the one planner of all kinds that have them.

Belongs here: the specification that JobSets, TrainJobs and training jobs are translated to, and the plan. Does not
belong here: the fields of a kind, its variables and its status (`katib.places.machine.jobs.jobset`, `replicated`).
"""
