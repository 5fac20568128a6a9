"""The KatibConfig of a cluster: which images serve algorithms and collect metrics, and how the controller runs.

Belongs here: the models, their defaults and what is wrong with a file. Does not belong here: reading it from a cluster.
"""
