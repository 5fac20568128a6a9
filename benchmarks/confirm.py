"""Calibration of `katib confirm`: how often the named winner is the true best, against the stated probability.

`python -m benchmarks.confirm` searches 20 problems with noise of 5 and 20 % of their range, runs the best three
configurations of each search again, and prints by noise: the stated probability of the winner and how often it is the
true best of the three, how often an interval holds the true mean, and the estimated and the true optimism of the
search's best value. The range of a problem is that of random points without a tenth at each end.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from random import Random

from benchmarks.search import bbob, mixed, searches
from benchmarks.search.problems import Setting, Task
from benchmarks.support import options
from katib.service.tuning.certainty import estimates
from katib.service.tuning.service import INTERVAL_LEVEL

PROBLEMS = 20
NOISES = (0.05, 0.2)
TARGET = 0.1
_EDGES = (0.0, 0.5, 0.7, 0.9, 1.01)
_POINTS = 400


@dataclass(frozen=True, slots=True)
class Confirmed:
    """One confirmation.

    Attributes:
        is_best: Whether it is the true best of the configurations.
        inside: Share of the intervals that hold the true mean.
        flattered: Estimated optimism of the search's best value, in shares of the range.
        truly_flattered: The true one.
    """

    stated: float
    is_best: bool
    inside: float
    flattered: float
    truly_flattered: float


def problems() -> list[Task]:
    """Return every other function of BBOB, and the mixed problems."""
    found = [*list(bbob.tasks("development"))[::2], *mixed.tasks("development")]
    return found[:PROBLEMS]


def range_of(task: Task) -> float:
    search = searches.RandomBaseline(task, Setting(0, _POINTS, 1))
    tenths = statistics.quantiles((task.evaluate(search.ask()[1]) for _ in range(_POINTS)), n=10)
    return tenths[-1] - tenths[0]


def confirmed(task: Task, algorithm: str, noise: float, seed: int, top: int, repeats: int, budget: int) -> Confirmed:
    """Search a problem with noise, run the best configurations again, and compare with the truth."""
    search, random = searches.build(algorithm, task, Setting(seed, budget, 1)), Random(f"{task.name} {noise} {seed}")
    scale = range_of(task)
    found: list[tuple[float, float]] = []
    for _ in range(budget):
        asked = search.ask()
        if asked is None:
            break
        true = task.evaluate(asked[1]) / scale
        found.append((true + random.gauss(0, noise), true))
        search.tell(asked[0], found[-1][0])
    best = sorted(found)[:top]
    truths = [true for _, true in best]
    runs = [[true + random.gauss(0, noise) for _ in range(repeats)] for true in truths]
    means = estimates(runs)
    winner = min(range(top), key=lambda i: means[i].mean)
    inside = sum((one.low or 0) <= true <= (one.high or 0) for one, true in zip(means, truths, strict=True))
    value, true = best[0]
    return Confirmed(
        means[winner].probability or 0.0,
        truths[winner] == min(truths),
        inside / top,
        means[0].mean - value,
        true - value,
    )


def lines_of(noise: float, outcomes: Sequence[Confirmed]) -> Iterator[str]:
    mean = statistics.fmean
    yield (
        f"noise {noise:.0%}: stated {mean(o.stated for o in outcomes):.3f}, "
        f"true best {mean(o.is_best for o in outcomes):.3f} of {len(outcomes)}; "
        f"{INTERVAL_LEVEL:.0%} intervals hold {mean(o.inside for o in outcomes):.3f}; "
        f"optimism {mean(o.flattered for o in outcomes):.3f}, true {mean(o.truly_flattered for o in outcomes):.3f}"
    )
    for low, high in pairwise(_EDGES):
        if of := [o for o in outcomes if low <= o.stated < high]:
            yield f"  stated {mean(o.stated for o in of):.3f}, true best {mean(o.is_best for o in of):.3f} of {len(of)}"


def main() -> int:
    given = options(__doc__, algorithm="katib:tpe", seeds=10, top=3, repeats=5, budget=30)
    missed = False
    for noise in NOISES:
        outcomes = [
            confirmed(task, given.algorithm, noise, seed, given.top, given.repeats, given.budget)
            for task, seed in chain.from_iterable(((task, seed) for seed in range(given.seeds)) for task in problems())
        ]
        print("\n".join(lines_of(noise, outcomes)), flush=True)
        gap = statistics.fmean(o.stated for o in outcomes) - statistics.fmean(o.is_best for o in outcomes)
        missed |= abs(gap) > TARGET
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
