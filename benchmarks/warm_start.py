"""What earlier trials of other tasks save or cost: evaluations to a value, with and without them.

`python -m benchmarks.warm_start [--algorithms gp,tpe] [--seeds 7] [--pairs PATTERN]` prints a row for each pair of
tasks and algorithm. The earlier task has 40 trials of the same algorithm. The value to reach is what the search without
them has after 12 evaluations, the median over seeds; a search that does not get there within 40 counts as 41. Targets:
never more than 1.05 times the evaluations, at most half of them where tasks are alike.
"""

from __future__ import annotations

import fnmatch
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from benchmarks.search.own import Searching, number
from benchmarks.support import options
from katib.model.names import EXPERIMENT_LABEL
from suggestion_services.base.algorithm import PastTrial

Function = Callable[[Sequence[float]], float]

EARLIER, GOAL_AT, MOST = 40, 12, 40
NAMES = ("x", "y", "z")


def sphere(x: Sequence[float], *, at: float = 0.35) -> float:
    """Return the squared distance from a point, in units of a tenth of the space."""
    return float(sum((10 * (value - at)) ** 2 for value in x))


def hartmann(x: Sequence[float], *, heights: Sequence[float] = (1.0, 1.2, 3.0, 3.2), shift: float = 0.0) -> float:
    """Return Hartmann's function of three dimensions; other heights make another task of the same kind."""
    a = np.array([[3, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]])
    p = 1e-4 * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]])
    inner = np.sum(a * (np.asarray(x) - shift - p) ** 2, axis=1)
    return float(-np.dot(heights, np.exp(-inner)))


def valley(x: Sequence[float], *, turn: float = 0.0) -> float:
    """Return the root of Rosenbrock's function over [-3.2, 1.8], its valley moved a little."""
    v = [5 * value - 3.2 for value in x]
    return sum(100 * (b - a * a - turn) ** 2 + (1 - a) ** 2 for a, b in pairwise(v)) ** 0.5


@cache
def _data(name: str) -> tuple[np.ndarray, np.ndarray]:
    from sklearn import datasets
    from sklearn.preprocessing import scale

    features, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    return scale(features), labels


def training(x: Sequence[float], *, data: str) -> float:
    """Return the error of a support vector machine in cross-validation."""
    from sklearn.model_selection import cross_val_score
    from sklearn.svm import SVC

    model = SVC(C=10 ** (5 * x[0] - 2), gamma=10 ** (6 * x[1] - 5), kernel="rbf", shrinking=x[2] > 0.5)
    return 1.0 - float(cross_val_score(model, *_data(data), cv=3).mean())


PAIRS: Mapping[str, tuple[Function, Function, bool]] = {
    "sphere, the same": (sphere, sphere, True),
    "sphere, 20 lower": (lambda x: sphere(x) - 20, sphere, True),
    "sphere, 100 times": (lambda x: 100 * sphere(x), sphere, True),
    "sphere, optimum 0.05 away": (lambda x: sphere(x, at=0.3) - 20, sphere, True),
    "sphere, optimum 0.3 away": (lambda x: sphere(x, at=0.65) - 20, sphere, False),
    "sphere, upside down": (lambda x: -sphere(x), sphere, False),
    "hartmann, the same": (hartmann, hartmann, True),
    "hartmann, other heights": (lambda x: hartmann(x, heights=(1.2, 1.0, 2.4, 3.4)), hartmann, True),
    "hartmann, 0.2 moved": (lambda x: hartmann(x, shift=0.2), hartmann, False),
    "valley, moved": (lambda x: valley(x, turn=0.3), valley, True),
    "valley after hartmann": (hartmann, valley, False),
    "svm, iris to wine": (lambda x: training(x, data="iris"), lambda x: training(x, data="wine"), True),
}
"""The earlier task, the task, and whether they are alike."""


def search(
    algorithm: str,
    function: Function,
    seed: int,
    count: int,
    earlier: Sequence[PastTrial] = (),
    *,
    cost: Function = lambda _x: math.nan,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> list[PastTrial]:
    """Return the trials of a search, one after the other.

    Args:
        function: Is minimized over the unit cube.
        cost: How many seconds a trial takes; NaN where that is unknown.
        settings: Of the algorithm, beside the seed.
    """
    parameters = [number(name, 0, 1) for name in NAMES]
    searching = Searching(algorithm, parameters, {"random_state": seed, **settings}, budget=count, parallel=1)
    for _ in range(count):
        (proposal,) = searching.suggest(earlier=earlier)
        x = [float(proposal.assignments[name]) for name in NAMES]
        searching.add(proposal, function(x), seconds=cost(x))
    return searching.trials


def as_earlier(trials: Sequence[PastTrial]) -> list[PastTrial]:
    """Return trials as those of another experiment."""
    return [
        PastTrial(
            f"e-{t.name}", t.outcome, t.assignments, t.objective, labels={EXPERIMENT_LABEL: "old"}, is_earlier=True
        )
        for t in trials
    ]


def evaluations_to(goal: float, trials: Sequence[PastTrial]) -> int:
    """Return after how many evaluations a value was reached."""
    return next((i for i, trial in enumerate(trials, start=1) if trial.objective <= goal), MOST + 1)


def main() -> int:
    given = options(__doc__, algorithms="gp,tpe", seeds=7, pairs="*")
    fine = True
    for algorithm in given.algorithms.split(","):
        for name, (old, new, alike) in PAIRS.items():
            if not fnmatch.fnmatch(name, given.pairs):
                continue
            seeds = range(given.seeds)
            cold = [search(algorithm, new, seed, MOST) for seed in seeds]
            goal = statistics.median(min(t.objective for t in trials[:GOAL_AT]) for trials in cold)
            known = [as_earlier(search(algorithm, old, 100 + seed, EARLIER)) for seed in seeds]
            warm = [search(algorithm, new, seed, MOST, earlier) for seed, earlier in zip(seeds, known, strict=True)]
            without, with_them = ([evaluations_to(goal, t) for t in some] for some in (cold, warm))
            ratio = statistics.median(with_them) / statistics.median(without)
            mean = statistics.geometric_mean(b / a for a, b in zip(without, with_them, strict=True))
            most = 0.5 if alike else 1.05
            print(
                f"{algorithm:4} {name:28} without {without}, with {with_them}: {ratio:.2f}, "
                f"geometric mean of pairs {mean:.2f} "
                f"(target {most}){'' if ratio <= most else ' MISSED'}; "
                f"best {statistics.median(min(t.objective for t in s) for s in cold):.4g} and "
                f"{statistics.median(min(t.objective for t in s) for s in warm):.4g}",
                flush=True,
            )
            fine = fine and ratio <= most
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
