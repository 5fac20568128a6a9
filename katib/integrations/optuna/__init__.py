"""Optuna integration: studies stored by `katib serve`, and katib's algorithms as samplers.

study = optuna.create_study(storage=katib.integrations.optuna.storage(), study_name="mine", load_if_exists=True)
study = optuna.create_study(sampler=katib.integrations.optuna.Sampler("gp"))
"""

from katib.integrations.optuna.sampler import Sampler
from katib.integrations.optuna.storage import Storage, storage

__all__ = ["Sampler", "Storage", "storage"]
