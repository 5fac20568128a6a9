"""Repeats: each configuration is run several times, and its value is the mean of its runs.

`race` decides when further runs are futile, `runs` adds up the runs of configurations and chooses the next ones,
`feature` is the entry in the list of features.
"""
