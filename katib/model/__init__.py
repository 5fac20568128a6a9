"""The vocabulary: Experiment, Suggestion, Trial and their parts.

Belongs here: pure data of `kubeflow.org/v1beta1`, its defaults, its validation, its conditions and names.
Does not belong here: anything that does I/O or knows a database, a process or a wire.
"""
