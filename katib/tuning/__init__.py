"""What a user can ask of a tuning service, whoever carries it: the same calls behind the CLI, REST and the SDK.

Belongs here: the `TuningService` protocol and its values. Does not belong here: an implementation
(`katib.homes.tuning_service`), HTTP (`katib.rest`) or printing (`katib.cli`).
"""
