"""Progress of an experiment as shown to a user, and diagnoses: why it does not progress, or how it ended.

Belongs here: pure functions from evidence to a Diagnosis (the evidence may come from any store), and the presentation
of a run that the command line and `katib.tune` share (`progress`, `lines`). Does not belong here: stores, processes,
the live table (`katib.doors.cli.run`).
"""
