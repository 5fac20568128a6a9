"""A door for users of Optuna: its gRPC storage protocol, answered from the trials whose parameters callers choose.

Belongs here: the messages of the protocol and their translation. Does not belong here: what an experiment or a trial
is, and any state (`katib.service.tuning.chosen_trials`).
"""
