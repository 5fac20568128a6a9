"""The pods of trials: what they say, whose they are, and what is done about those that miss their collector.

Belongs here: whatever reads pods or their logs. Does not belong here: what a trial's controller
makes of it.
"""
