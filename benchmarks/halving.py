"""How much work hyperband and bohb need for what random search and tpe reach with full trainings.

`python -m benchmarks.halving` prints, for each problem and algorithm, the median over seeds of the true loss of the
trial with the best final value, by the work done: one full training is 27 epochs.

Both problems are synthetic. `network` has five parameters, one of them a category. A configuration has a loss that it
would reach in the end, a speed at which it gets there (a better one is not always a faster one) and noise that falls
with the epochs. `bowl` is smooth, of three numbers, with much noise: a standard deviation of 1 after one epoch, where
the median of the loss is 9.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

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
class Training:
    """A synthetic training.

    Attributes:
        parameters: All but the epochs.
        final: What a configuration reaches with endless training; 0 is the least.
        missing: What it lacks after some epochs.
        noise: Standard deviation after one epoch.
    """

    parameters: tuple[ParameterSpec, ...]
    final: Callable[[Mapping[str, str]], float]
    missing: Callable[[Mapping[str, str], int], float]
    noise: float

    def loss_after(self, point: Mapping[str, str], epochs: int, seed: int) -> float:
        """Return what is measured after some epochs."""
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


def _number(name: str, low: str, high: str, distribution: str = "uniform") -> ParameterSpec:
    space = FeasibleSpace(min=low, max=high, distribution=distribution)
    return ParameterSpec(name=name, parameter_type="double", feasible_space=space)


_EPOCHS = ParameterSpec(name="epochs", parameter_type="int", feasible_space=FeasibleSpace(min="1", max=str(FULL)))
TRAININGS = {
    "network": Training(
        (
            _number("lr", "0.00001", "1", "logUniform"),
            _number("momentum", "0", "1"),
            _number("dropout", "0", "0.8"),
            ParameterSpec(name="layers", parameter_type="int", feasible_space=FeasibleSpace(min="1", max="10")),
            ParameterSpec(
                name="opt", parameter_type="categorical", feasible_space=FeasibleSpace(list=("adam", "sgd", "rmsprop"))
            ),
        ),
        _network_final,
        _network_missing,
        noise=0.05,
    ),
    "bowl": Training(tuple(_number(name, "-3", "3") for name in "xyz"), _bowl, lambda _, epochs: 4 / epochs, noise=1.0),
}


def problem_of(training: Training, row: str, seed: int) -> Problem:
    """Return the problem; where the algorithm does not choose the epochs, it does not see them."""
    algorithm, chosen = ROWS[row]
    settings = {**chosen, "random_state": str(seed)}
    given = tuple(AlgorithmSetting(name=name, value=value) for name, value in settings.items())
    spec = ExperimentSpec(
        parameters=(*training.parameters, _EPOCHS) if "resource_name" in chosen else training.parameters,
        objective=ObjectiveSpec(type="minimize", objective_metric_name="loss"),
        algorithm=AlgorithmSpec(algorithm_name=algorithm, algorithm_settings=given),
    )
    return Problem.of(f"halving-{seed}", spec, find_entry(algorithm, early_stopping=False).info)


def search(training: Training, row: str, seed: int, most: float) -> list[tuple[float, float]]:
    """Return the work done and the true loss of the best trial so far, after each full training.

    Args:
        training: What is searched.
        row: Of `ROWS`.
        seed: Of the algorithm and of the noise.
        most: Full trainings.
    """
    problem = problem_of(training, row, seed)
    engine = find_entry(ROWS[row][0], early_stopping=False).load()(problem)
    trials: list[PastTrial] = []
    reached: list[tuple[float, float]] = []
    work, best = 0.0, (math.inf, math.inf)
    while work < most:
        try:
            suggestion = next(iter(engine.suggest(trials, first=len(trials), count=1)))
        except (NotYet, StopIteration):
            break
        proposal = suggestion if isinstance(suggestion, Proposal) else None
        point = dict(proposal.assignments) if proposal else problem.space.format(suggestion)
        epochs = int(point.get("epochs", FULL))
        measured = training.loss_after(point, epochs, seed)
        labels = proposal.labels if proposal else {}
        trials.append(PastTrial(f"t{len(trials):06}", Outcome.MEASURED, point, measured, labels=labels))
        work += epochs / FULL
        if epochs == FULL:
            best = min(best, (measured, training.final(point)))
            reached.append((work, best[1]))
    return reached


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.halving", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args(arguments)
    for name, training in TRAININGS.items():
        sys.stdout.write(f"{name:<12}" + "".join(f"{f'{w} trainings':>15}" for w in WORK) + "\n")
        for row in ROWS:
            runs = [search(training, row, seed, WORK[-1]) for seed in range(options.seeds)]
            cells = [
                statistics.median([math.inf, *(loss for work, loss in run if work <= limit)][-1] for run in runs)
                for limit in WORK
            ]
            sys.stdout.write(f"{row:<12}" + "".join(f"{cell:>15.3f}" for cell in cells) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
