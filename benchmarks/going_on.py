"""How many epochs it saves that promoted trials go on from checkpoints, on a real training.

`python -m benchmarks.going_on` trains small networks on scikit-learn's digits, one epoch at a time, in one round of
`hyperband` up to 27 epochs, and with `asha` until three trials have had all of them. It prints the epochs and the best
accuracy, medians over seeds: with promoted trials that train from the beginning, and with those that go on from the
checkpoint named by their label. The programs are this process, and a checkpoint is a copy of the network.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import warnings
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from katib.api.checkpoints import parent_of
from katib.api.types import (
    AlgorithmSetting,
    AlgorithmSpec,
    ExperimentSpec,
    FeasibleSpace,
    ObjectiveSpec,
    ParameterSpec,
)
from suggestion_services.algorithms import find_entry
from suggestion_services.base.algorithm import NotYet, Outcome, PastTrial, Problem, Proposal

FULL = 27
ETAS = (3, 2)
ENDED = 3
"""Trials with all epochs after which `asha`, which has no end of its own, is ended here."""
_CLASSES = np.arange(10)


def problem_of(algorithm: str, eta: int, seed: int, *, keeps: bool) -> Problem:
    """Return the search."""
    settings = {"r_l": FULL, "resource_name": "epochs", "eta": eta, "random_state": seed}
    given = [AlgorithmSetting(name=name, value=str(value)) for name, value in settings.items()]
    if keeps:
        given.append(AlgorithmSetting(name="suggestion_trial_dir", value="/checkpoints"))
    rate = FeasibleSpace(min="0.00001", max="0.1", distribution="logUniform")
    spec = ExperimentSpec(
        parameters=(
            ParameterSpec(name="lr", parameter_type="double", feasible_space=rate),
            ParameterSpec(name="units", parameter_type="int", feasible_space=FeasibleSpace(min="4", max="64")),
            ParameterSpec(name="epochs", parameter_type="int", feasible_space=FeasibleSpace(min="1", max=str(FULL))),
        ),
        objective=ObjectiveSpec(type="maximize", objective_metric_name="accuracy"),
        algorithm=AlgorithmSpec(algorithm_name=algorithm, algorithm_settings=tuple(given)),
    )
    return Problem.of(f"going-on-{seed}", spec, find_entry(algorithm).info)


def search(algorithm: str, eta: int, seed: int, *, keeps: bool) -> tuple[int, float]:
    """Return the epochs trained and the best accuracy of a trial with all of them."""
    problem = problem_of(algorithm, eta, seed, keeps=keeps)
    engine = find_entry(algorithm).load()(problem)
    x, test_x, y, test_y = train_test_split(*load_digits(return_X_y=True), test_size=0.5, random_state=seed)
    trials: list[PastTrial] = []
    checkpoints: dict[str, tuple[int, Any]] = {}
    total, best, n_full = 0, 0.0, 0
    while algorithm != "asha" or n_full < ENDED:
        try:
            proposal = next(iter(engine.suggest(trials, first=len(trials), count=1)))
        except (NotYet, StopIteration):
            return total, best
        assert isinstance(proposal, Proposal)
        point, parent = proposal.assignments, parent_of(proposal.labels)
        if parent:
            done, network = copy.deepcopy(checkpoints[parent])
        else:
            units, rate = int(point["units"]), float(point["lr"])
            done, network = 0, MLPClassifier((units,), learning_rate_init=rate, batch_size=64, random_state=seed)
        epochs, name = int(point["epochs"]), f"t{len(trials):06}"
        for _ in range(done, epochs):
            network.partial_fit(x / 16, y, classes=_CLASSES)
        total += epochs - done
        accuracy = float(network.score(test_x / 16, test_y))
        checkpoints[name] = epochs, network
        trials.append(PastTrial(name, Outcome.MEASURED, point, accuracy, labels=proposal.labels))
        if epochs == FULL:
            best, n_full = max(best, accuracy), n_full + 1
    return total, best


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.going_on", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", ConvergenceWarning)
    sys.stdout.write(f"{'':<11}{'eta':<5}{'promoted trials':<22}{'epochs':>8}{'accuracy':>10}\n")
    for algorithm, eta in product(("hyperband", "asha"), ETAS):
        for keeps, what in ((False, "begin with nothing"), (True, "go on")):
            runs = [search(algorithm, eta, seed, keeps=keeps) for seed in range(options.seeds)]
            epochs, accuracy = (statistics.median(column) for column in zip(*runs, strict=True))
            sys.stdout.write(f"{algorithm:<11}{eta:<5}{what:<22}{epochs:>8.0f}{accuracy:>10.4f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
