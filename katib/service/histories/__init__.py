"""Trials in the files of other programs: read, as what an Experiment without template takes in, and written.

Belongs here: one module for each program whose files are read, what makes a search space of what was found, and what
writes trials as others keep them. Does not belong here: anything that changes an experiment; `katib.service.tuning`
takes the trials.
"""
