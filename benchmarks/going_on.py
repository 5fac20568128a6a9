"""Epochs saved by promoted trials that continue from checkpoints, on a real training.

`python -m benchmarks.going_on` trains small networks on scikit-learn's digits, one epoch at a time, in one round of
`hyperband` up to 27 epochs, and with `asha` until three trials have had all of them. It prints the epochs and the best
accuracy, medians over seeds: with promoted trials that train from scratch, and with those that continue from the
checkpoint named by their label. The programs run in this process, and a checkpoint is a copy of the network.
"""

from __future__ import annotations

import copy
import statistics
import warnings
from itertools import product
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from benchmarks.search.own import Searching, number
from benchmarks.support import options
from katib.model.checkpoints import parent_of
from katib.model.types import ObjectiveSpec

FULL = 27
ETAS = (3, 2)
ENDED = 3
"""Trials with all epochs after which `asha`, which has no end of its own, is stopped."""
_CLASSES = np.arange(10)


def search(algorithm: str, eta: int, seed: int, *, keeps: bool) -> tuple[int, float]:
    """Return the epochs trained and the best accuracy of a trial with all of them."""
    settings = {"r_l": FULL, "resource_name": "epochs", "eta": eta, "random_state": seed}
    searching = Searching(
        algorithm,
        [
            number("lr", 1e-5, 0.1, log=True),
            number("units", 4, 64, whole=True),
            number("epochs", 1, FULL, whole=True),
        ],
        settings | ({"suggestion_trial_dir": "/checkpoints"} if keeps else {}),
        objective=ObjectiveSpec(type="maximize", objective_metric_name="accuracy"),
    )
    x, test_x, y, test_y = train_test_split(*load_digits(return_X_y=True), test_size=0.5, random_state=seed)
    checkpoints: dict[str, tuple[int, Any]] = {}
    total, best, n_full = 0, 0.0, 0
    while (algorithm != "asha" or n_full < ENDED) and (found := searching.suggest()):
        (proposal,) = found
        point, parent = proposal.assignments, parent_of(proposal.labels)
        if parent:
            done, network = copy.deepcopy(checkpoints[parent])
        else:
            units, rate = int(point["units"]), float(point["lr"])
            done, network = 0, MLPClassifier((units,), learning_rate_init=rate, batch_size=64, random_state=seed)
        epochs = int(point["epochs"])
        for _ in range(done, epochs):
            network.partial_fit(x / 16, y, classes=_CLASSES)
        total += epochs - done
        accuracy = float(network.score(test_x / 16, test_y))
        searching.add(proposal, accuracy)
        checkpoints[searching.trials[-1].name] = epochs, network
        if epochs == FULL:
            best, n_full = max(best, accuracy), n_full + 1
    return total, best


def main() -> None:
    seeds = options(__doc__, seeds=10).seeds
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(f"{'':<11}{'eta':<5}{'promoted trials':<22}{'epochs':>8}{'accuracy':>10}")
    for algorithm, eta in product(("hyperband", "asha"), ETAS):
        for keeps, what in ((False, "begin with nothing"), (True, "continue")):
            runs = [search(algorithm, eta, seed, keeps=keeps) for seed in range(seeds)]
            epochs, accuracy = (statistics.median(column) for column in zip(*runs, strict=True))
            print(f"{algorithm:<11}{eta:<5}{what:<22}{epochs:>8.0f}{accuracy:>10.4f}")


if __name__ == "__main__":
    main()
