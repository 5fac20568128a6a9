"""Cost of a search that weighs expected improvement against duration, relative to one that does not.

`python -m benchmarks.cost_aware [--algorithm gp] [--seeds 10] [--problems PATTERN]` prints a row for each problem. The
goal is the value of the search without it after 15 evaluations, the median over seeds; a row has the cost of each
search up to the goal, in seconds computed from the parameters, so that the load of the machine does not matter. The
budget is 50 trials. Target: at most 0.8 times the cost if it varies, and the same search if it does not.
"""

from __future__ import annotations

import fnmatch
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate

from benchmarks import warm_start
from benchmarks.support import options
from benchmarks.warm_start import Function, hartmann, sphere, valley
from suggestion_services.base.algorithm import PastTrial

MOST, GOAL_AT = 50, 15
MOST_TREES = 200


@cache
def _digits() -> tuple[object, ...]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    features, labels = load_digits(return_X_y=True)
    return tuple(train_test_split(features[:600], labels[:600], test_size=0.5, random_state=0))


def _trees(x: float) -> int:
    return round(MOST_TREES ** (0.25 + 0.75 * x))


def _depth(z: float) -> int:
    return 1 + min(int(5 * z), 4)


@cache
def _boosted(trees: int, rate: float, depth: int) -> float:
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.metrics import log_loss

    train, test, train_labels, test_labels = _digits()
    model = GradientBoostingClassifier(
        n_estimators=trees, learning_rate=rate, max_depth=depth, max_features=8, random_state=0
    )
    model.fit(train, train_labels)
    return float(log_loss(test_labels, model.predict_proba(test)))


def boosted_trees(x: Sequence[float]) -> float:
    """Return the log loss of boosted trees on a part of the digits, by their number, learning rate and depth."""
    return _boosted(_trees(x[0]), round(10 ** (2 * x[1] - 2), 4), _depth(x[2]))


PROBLEMS: Mapping[str, tuple[Function, Function]] = {
    "hartmann, cost along x": (hartmann, lambda x: 10 ** (2 * x[0])),
    "hartmann, cost along z": (hartmann, lambda x: 10 ** (2 * x[2])),
    "hartmann, dear optimum": (hartmann, lambda x: 100 / (1 + 30 * math.dist(x, (0.114, 0.556, 0.852)))),
    "sphere, cheap optimum": (sphere, lambda x: 1 + 20 * math.dist(x, (0.35, 0.35, 0.35)) ** 2),
    "valley, cost along y": (valley, lambda x: 10 ** (2 * x[1])),
    "boosted trees": (boosted_trees, lambda x: 0.01 * _trees(x[0]) * _depth(x[2])),
    "hartmann, alike": (hartmann, lambda _x: 30.0),
}
"""The function to minimize, and the cost of a trial in seconds."""


def search(algorithm: str, problem: tuple[Function, Function], seed: int, *, aware: bool) -> list[PastTrial]:
    function, cost = problem
    settings = {"cost_aware": "true"} if aware else {}
    return warm_start.search(algorithm, function, seed, MOST, cost=cost, settings=settings)


def cost_to(goal: float, trials: Sequence[PastTrial]) -> float:
    """Return the cost up to a value; infinite if it was not reached."""
    paid = accumulate(trial.seconds for trial in trials)
    return next((cost for cost, trial in zip(paid, trials, strict=True) if trial.objective <= goal), math.inf)


def _words(costs: Sequence[float]) -> str:
    return ", ".join(f"{cost:.0f}" for cost in costs)


def main() -> int:
    given = options(__doc__, algorithm="gp", seeds=10, first_seed=0, problems="*")
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    fine = True
    for name, problem in PROBLEMS.items():
        if not fnmatch.fnmatch(name, given.problems):
            continue
        without, aware = (
            [search(given.algorithm, problem, seed, aware=is_so) for seed in seeds] for is_so in (False, True)
        )
        goal = statistics.median(min(trial.objective for trial in trials[:GOAL_AT]) for trials in without)
        before, after = ([cost_to(goal, trials) for trials in some] for some in (without, aware))
        ratio = statistics.median(after) / statistics.median(before)
        fine_here = without == aware if "alike" in name else ratio <= 0.8
        best, best_aware = (statistics.median(min(t.objective for t in s) for s in some) for some in (without, aware))
        print(
            f"{name:24} without {_words(before)}; with {_words(after)}: {ratio:.2f} times"
            f"{'' if fine_here else ' MISSED'}; best of {MOST} trials {best:.4g} and {best_aware:.4g}",
            flush=True,
        )
        fine = fine and fine_here
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
