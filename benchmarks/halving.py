"""How much work hyperband and bohb need for what random search and tpe reach with full trainings.

`python -m benchmarks.halving` prints, for each algorithm, the median over seeds of the true loss of the trial with the
best final value, by the work done: one full training is 27 epochs.

The problem is synthetic: five parameters, one of them a category. A configuration has a loss that it would reach in the
end, a speed at which it gets there (a better one is not always a faster one) and noise that falls with the epochs.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
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

ROWS: Mapping[str, Mapping[str, str]] = {
    "random": {},
    "tpe": {},
    "hyperband": {"r_l": str(FULL), "resource_name": "epochs", "rounds": "0"},
    "bohb": {"r_l": str(FULL), "resource_name": "epochs", "rounds": "0"},
}


def final_loss(point: Mapping[str, str]) -> float:
    """Return what a configuration reaches with endless training; 0 is the least."""
    rate = (math.log10(float(point["lr"])) + 2.5) ** 2 / 4
    rest = sum((float(point[name]) - best) ** 2 for name, best in (("momentum", 0.8), ("dropout", 0.2)))
    return rate + rest + abs(int(point["layers"]) - 4) / 20 + {"adam": 0.0, "sgd": 0.1, "rmsprop": 0.05}[point["opt"]]


def loss_after(point: Mapping[str, str], epochs: int, seed: int) -> float:
    """Return what is measured after some epochs."""
    speed = 0.5 + float(point["momentum"]) + 0.2 * math.log10(float(point["lr"]) * 1e4)
    text = f"{seed}/{epochs}/{sorted((k, v) for k, v in point.items() if k != 'epochs')}"
    noise = Random(hashlib.sha256(text.encode()).digest()).gauss(0, 0.05)
    return final_loss(point) + math.exp(-speed * epochs / 6) + noise / math.sqrt(epochs)


def problem_of(algorithm: str, seed: int) -> Problem:
    """Return the problem; where the algorithm does not choose the epochs, it does not see them."""
    halves = "resource_name" in ROWS[algorithm]
    parameters = [
        _number("lr", "0.00001", "1", "logUniform"),
        _number("momentum", "0", "1"),
        _number("dropout", "0", "0.8"),
        ParameterSpec(name="layers", parameter_type="int", feasible_space=FeasibleSpace(min="1", max="10")),
        ParameterSpec(
            name="opt", parameter_type="categorical", feasible_space=FeasibleSpace(list=("adam", "sgd", "rmsprop"))
        ),
        ParameterSpec(name="epochs", parameter_type="int", feasible_space=FeasibleSpace(min="1", max=str(FULL))),
    ]
    settings = {**ROWS[algorithm], "random_state": str(seed)}
    given = tuple(AlgorithmSetting(name=name, value=value) for name, value in settings.items())
    spec = ExperimentSpec(
        parameters=tuple(parameters if halves else parameters[:-1]),
        objective=ObjectiveSpec(type="minimize", objective_metric_name="loss"),
        algorithm=AlgorithmSpec(algorithm_name=algorithm, algorithm_settings=given),
    )
    return Problem.of(f"halving-{seed}", spec, find_entry(algorithm, early_stopping=False).info)


def _number(name: str, low: str, high: str, distribution: str = "uniform") -> ParameterSpec:
    space = FeasibleSpace(min=low, max=high, distribution=distribution)
    return ParameterSpec(name=name, parameter_type="double", feasible_space=space)


def search(algorithm: str, seed: int, most: float) -> list[tuple[float, float]]:
    """Return the work done and the true loss of the best trial so far, after each full training.

    Args:
        algorithm: Which.
        seed: Of the algorithm and of the noise.
        most: Full trainings.
    """
    problem = problem_of(algorithm, seed)
    engine = find_entry(algorithm, early_stopping=False).load()(problem)
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
        measured = loss_after(point, epochs, seed)
        labels = proposal.labels if proposal else {}
        trials.append(PastTrial(f"t{len(trials):06}", Outcome.MEASURED, point, measured, labels=labels))
        work += epochs / FULL
        if epochs == FULL:
            best = min(best, (measured, final_loss(point)))
            reached.append((work, best[1]))
    return reached


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.halving", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args(arguments)
    sys.stdout.write(f"{'algorithm':<12}" + "".join(f"{f'{w} trainings':>15}" for w in WORK) + "\n")
    for algorithm in ROWS:
        runs = [search(algorithm, seed, WORK[-1]) for seed in range(options.seeds)]
        cells = [
            statistics.median([math.inf, *(loss for work, loss in run if work <= limit)][-1] for run in runs)
            for limit in WORK
        ]
        sys.stdout.write(f"{algorithm:<12}" + "".join(f"{cell:>15.3f}" for cell in cells) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
