"""Files and folders that are complete or absent, whatever is killed and however full the disk is.

Belongs here: writing a file whole, a trial's folder of checkpoints. The standard library alone.
Does not belong here: what files mean.
"""
