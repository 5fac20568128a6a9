"""`katib run`: an experiment from its file to its end, in this process.

`progress` turns changes into moments, `lines` and `live` show them, `summary` says how it ended, `command` ties them to
the engine, to signals and to exit codes.
"""
