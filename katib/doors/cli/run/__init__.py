"""`katib run`: an experiment from its file to its end, in this process or in a cluster.

`progress` turns changes into moments, `lines` and `live` show them, `summary` describes the end, `following` ties them
to signals, `command` to the engine or a cluster and to exit codes.
"""
