"""Following a run: from changes of objects to the moments that are shown to a user, and their lines.

Belongs here: what the command line and `katib.tune` show alike. Does not belong here: the live table (`katib.cli.run`).
"""
