"""The requests of a user, and their handlers over any object store.

Belongs here: the verbs and their answers (`service`), and their handlers in both homes
(`stored_service`). Does not belong here: processes, clusters, HTTP (`katib.doors.rest`) or printing
(`katib.doors.cli`).
"""
