"""Trials in files of other programs: reading them for an Experiment without template, and writing them.

Belongs here: one module for each supported program, the derivation of a search space from trials, and writers of trials
in other programs' formats. Does not belong here: changes of an experiment; `katib.service.tuning` adopts the trials.
"""
