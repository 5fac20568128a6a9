"""Budgets: limits on the hours, resource hours and money that the trials of an experiment use together.

`amounts` reads and writes them, `spending` adds up the use of trials, `feature` is the entry in the list of features.
"""
