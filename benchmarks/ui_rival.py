"""Run by the interpreter of the rival: optuna-dashboard over a study of the same trials. Imports nothing of ours.

python ui_rival.py fill DATABASE TRIALS.json
python ui_rival.py serve DATABASE PORT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def fill(database: str, source: str) -> None:
    """Make a study of trials that are given as [parameters, value or null, state]."""
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
    from optuna.trial import TrialState, create_trial

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {
        "lr": FloatDistribution(1e-4, 1, log=True),
        "units": IntDistribution(8, 512),
        "dropout": FloatDistribution(0, 0.5),
        "optimizer": CategoricalDistribution(["sgd", "adam", "ftrl"]),
    }
    states = {"Succeeded": TrialState.COMPLETE, "EarlyStopped": TrialState.PRUNED, "Failed": TrialState.FAIL}
    trials = []
    for given, value, state in json.loads(Path(source).read_text()):
        params = {**given, "lr": float(given["lr"]), "units": int(given["units"]), "dropout": float(given["dropout"])}
        trials.append(create_trial(params=params, distributions=space, value=value, state=states[state]))
    study = optuna.create_study(storage=f"sqlite:///{database}", study_name="many", direction="minimize")
    study.add_trials(trials)


def serve(database: str, port: str) -> None:
    """Serve the study until stopped."""
    import optuna_dashboard

    optuna_dashboard.run_server(f"sqlite:///{database}", host="127.0.0.1", port=int(port))


if __name__ == "__main__":
    {"fill": fill, "serve": serve}[sys.argv[1]](*sys.argv[2:])
