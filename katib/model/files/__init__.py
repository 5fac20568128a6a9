"""Files and folders that are complete or absent, after a kill at any time and on a full disk.

Belongs here: atomic writes of files, a trial's folder of checkpoints. The standard library alone. Does not belong here:
the meaning of files.
"""
