"""The pods of trials: their state, their owners, and the repair of pods without collector.

Belongs here: readers of pods and of their logs. Does not belong here: the decisions of a trial's controller.
"""
