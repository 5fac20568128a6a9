"""Budgets: hours, hours of a resource, and money that the trials of an experiment may use together.

`amounts` reads and writes them, `spending` adds up what trials use, `feature` is what the list of features holds.
"""
