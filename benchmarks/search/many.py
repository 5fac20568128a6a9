"""Problems of 20 to 50 parameters: BBOB, a function of which five of 50 parameters matter, and boosted trees.

They are splits of their own, `many` and `many-final`, since a run takes minutes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from random import Random

from benchmarks.search import bbob
from benchmarks.search.problems import Task, Values, doubles
from benchmarks.search.trainings import boosting_30d

FUNCTIONS = {"many": (1, 8, 10, 13, 15), "many-final": (9, 14, 17)}  # of BBOB, others than in `final`
DIMENSIONS = (20, 50)
INSTANCES = {"many": 3, "many-final": 8}
_MATTERING = 5


def tasks(split: str) -> Iterator[Task]:
    """Yield the problems of a split."""
    instance = INSTANCES[split]
    for function in FUNCTIONS[split]:
        for n in DIMENSIONS:
            yield bbob.task(function, instance, n)
    yield _sparse(instance)
    yield boosting_30d(split)


def _sparse(instance: int) -> Task:
    """Return a bent valley in five of 50 parameters, with its optimum inside."""
    random = Random(f"sparse {instance}")
    places = random.sample(range(50), _MATTERING)
    center = [random.uniform(0.2, 0.8) for _ in places]

    def evaluate(values: Values) -> float:
        z = [4.0 * (float(values[f"x{i}"]) - c) for i, c in zip(places, center, strict=True)]
        bent = sum(5.0 * (b - a * a) ** 2 for a, b in pairwise(z))
        return bent + sum(a * a for a in z) + 0.5 * math.fsum(1.0 - math.cos(2.0 * math.pi * a) for a in z)

    names = " ".join(f"x{i}" for i in range(50))
    return Task("sparse-50d", "sparse", doubles(names, 0.0, 1.0), evaluate, 0.0, resolution=1e-4)
