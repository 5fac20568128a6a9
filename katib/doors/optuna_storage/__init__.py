"""Optuna's gRPC storage protocol, served from trials whose parameters callers choose.

Belongs here: the messages of the protocol and their translation. Does not belong here: the rules of experiments and
trials, and any state (`katib.service.tuning.chosen_trials`).
"""
