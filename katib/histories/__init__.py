"""Trials that other programs kept: read from their files, as what an Experiment without template takes in.

Belongs here: one module for each program whose files are read, and what makes a search space of what was found.
Does not belong here: anything that writes; `katib.tuning` takes the trials.
"""
