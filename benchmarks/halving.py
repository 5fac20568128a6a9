"""Work that hyperband and bohb need for the results of random search and tpe with full trainings.

`python -m benchmarks.halving` prints, for each problem and algorithm, the median over seeds of the true loss of the
trial with the best final value, by the work done: one full training is 27 epochs.

Both problems are synthetic. `network` has five parameters, one of them a category. A configuration has a limit of its
loss, a speed of convergence (a better one is not always a faster one) and noise that falls with the epochs. `bowl` is
smooth, of three numbers, with much noise: a standard deviation of 1 after one epoch, with a median loss of 9.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from benchmarks.search.own import Searching, number, parameter
from benchmarks.search.problems import Variable
from benchmarks.support import options
from katib.model.types import ParameterSpec

FULL = 27
WORK = (5, 10, 20, 40)
"""In full trainings."""

_RUNGS = {"r_l": str(FULL), "resource_name": "epochs", "rounds": "0"}
ROWS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "random": ("random", {}),
    "tpe": ("tpe", {}),
    "hyperband": ("hyperband", _RUNGS),
    "bohb": ("bohb", _RUNGS),
    "bohb, tpe": ("bohb", {**_RUNGS, "model": "tpe"}),
    "bohb, gp": ("bohb", {**_RUNGS, "model": "gp"}),
}


@dataclass(frozen=True, slots=True)
class SyntheticTraining:
    """A synthetic training.

    Attributes:
        parameters: All parameters except the epochs.
        final: Limit of a configuration's loss; 0 is the least.
        missing: Distance from the limit after some epochs.
        noise: Standard deviation after one epoch.
    """

    parameters: tuple[ParameterSpec, ...]
    final: Callable[[Mapping[str, str]], float]
    missing: Callable[[Mapping[str, str], int], float]
    noise: float

    def loss_after(self, point: Mapping[str, str], epochs: int, seed: int) -> float:
        """Return the measured loss after some epochs."""
        text = f"{seed}/{epochs}/{sorted((k, v) for k, v in point.items() if k != 'epochs')}"
        noise = Random(hashlib.sha256(text.encode()).digest()).gauss(0, self.noise)
        return self.final(point) + self.missing(point, epochs) + noise / math.sqrt(epochs)


def _network_final(point: Mapping[str, str]) -> float:
    rate = (math.log10(float(point["lr"])) + 2.5) ** 2 / 4
    rest = sum((float(point[name]) - best) ** 2 for name, best in (("momentum", 0.8), ("dropout", 0.2)))
    return rate + rest + abs(int(point["layers"]) - 4) / 20 + {"adam": 0.0, "sgd": 0.1, "rmsprop": 0.05}[point["opt"]]


def _network_missing(point: Mapping[str, str], epochs: int) -> float:
    speed = 0.5 + float(point["momentum"]) + 0.2 * math.log10(float(point["lr"]) * 1e4)
    return math.exp(-speed * epochs / 6)


def _bowl(point: Mapping[str, str]) -> float:
    return sum((float(point[name]) - best) ** 2 for name, best in (("x", 0.7), ("y", -1.1), ("z", 1.6)))


TRAININGS = {
    "network": SyntheticTraining(
        (
            number("lr", 1e-5, 1, log=True),
            number("momentum", 0, 1),
            number("dropout", 0, 0.8),
            number("layers", 1, 10, whole=True),
            parameter(Variable("opt", "categorical", values=("adam", "sgd", "rmsprop"))),
        ),
        _network_final,
        _network_missing,
        noise=0.05,
    ),
    "bowl": SyntheticTraining(
        tuple(number(name, -3, 3) for name in "xyz"), _bowl, lambda _, epochs: 4 / epochs, noise=1.0
    ),
}


def search(training: SyntheticTraining, row: str, seed: int, most: float) -> list[tuple[float, float]]:
    """Return the work done and the true loss of the best trial so far, after each full training."""
    algorithm, settings = ROWS[row]
    parameters = list(training.parameters)
    if "resource_name" in settings:  # an algorithm that does not choose the epochs does not see them
        parameters.append(number("epochs", 1, FULL, whole=True))
    searching = Searching(algorithm, parameters, {**settings, "random_state": seed})
    reached: list[tuple[float, float]] = []
    work, best = 0.0, (math.inf, math.inf)
    while work < most and (found := searching.suggest()):
        (proposal,) = found
        point = proposal.assignments
        epochs = int(point.get("epochs", FULL))
        measured = training.loss_after(point, epochs, seed)
        searching.add(proposal, measured)
        work += epochs / FULL
        if epochs == FULL:
            best = min(best, (measured, training.final(point)))
            reached.append((work, best[1]))
    return reached


def main() -> None:
    seeds = options(__doc__, seeds=5).seeds
    for name, training in TRAININGS.items():
        print(f"{name:<12}" + "".join(f"{f'{w} trainings':>15}" for w in WORK))
        for row in ROWS:
            runs = [search(training, row, seed, WORK[-1]) for seed in range(seeds)]
            cells = [
                statistics.median([math.inf, *(loss for work, loss in run if work <= limit)][-1] for run in runs)
                for limit in WORK
            ]
            print(f"{row:<12}" + "".join(f"{cell:>15.3f}" for cell in cells))


if __name__ == "__main__":
    main()
