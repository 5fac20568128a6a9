"""What a user can ask of a tuning service, and the implementation over any object store.

Belongs here: the `TuningService` protocol and its values (`service`), and what answers it in both homes
(`stored_service`). Does not belong here: processes, clusters, HTTP (`katib.doors.rest`) or printing
(`katib.doors.cli`).
"""
