"""Searches on functions with many peaks, eight trials at a time, and on noisy ones.

    python -m benchmarks.rough [--seeds 5] [--budget 60] [--searches gp,tpe,random]

Searches are ours, or libraries' such as `optuna:tpe`. Printed is the median over seeds of the true value of the trial
with the best reading, above the optimum. The noise is normal, with a tenth of the function's range as its deviation.
Optima are not in the middle of the space.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.multi_fidelity import hartmann6
from benchmarks.search.problems import Setting, Task, Values, doubles
from benchmarks.search.searches import OWN, build
from benchmarks.support import options

Array = npt.NDArray[np.float64]
_AT_ONCE = 8
_NOISE = 0.1
_SAMPLES = 3_000  # random points that tell the range of a function


def _task(name: str, n: int, low: float, high: float, function: Callable[[Array], float], optimum: float = 0.0) -> Task:
    names = [f"x{i}" for i in range(n)]

    def evaluate(values: Values) -> float:
        return float(function(np.array([float(values[name]) for name in names])))

    return Task(name, "rough", doubles(" ".join(names), low, high), evaluate, optimum)


def _center(n: int, low: float, high: float, seed: int) -> Array:
    return low + (high - low) * (0.2 + 0.6 * np.random.default_rng(seed).random(n))


_CENTERS = {half: _center(5, -half, half, seed) for half, seed in ((5.12, 5), (15, 6), (20, 7))}
_BOWL = _center(4, 0, 1, 9)


def _rastrigin(x: Array) -> float:
    z = x - _CENTERS[5.12]
    return float(np.sum(z * z - 10 * np.cos(2 * np.pi * z) + 10))


def _ackley(x: Array) -> float:
    z = x - _CENTERS[15]
    waves = np.exp(np.mean(np.cos(2 * np.pi * z)))
    return float(20 + np.e - 20 * np.exp(-0.2 * np.sqrt(np.mean(z * z))) - waves)


def _levy(x: Array) -> float:
    w = 1 + (x - 1) / 4
    inner = np.sum((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2))
    return float(np.sin(np.pi * w[0]) ** 2 + inner + (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2))


def _griewank(x: Array) -> float:
    z = x - _CENTERS[20]
    return float(np.sum(z * z) / 200 - np.prod(np.cos(z / np.sqrt(np.arange(1, 6)))) + 1)


def _branin(x: Array) -> float:
    a, b = 15 * x[0] - 5, 15 * x[1]
    bowl = (b - 5.1 / (4 * np.pi**2) * a * a + 5 / np.pi * a - 6) ** 2
    return float(bowl + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10)


def _valley(x: Array) -> float:
    return float(np.log1p(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)))


PEAKS = (
    _task("rastrigin", 5, -5.12, 5.12, _rastrigin),
    _task("ackley", 5, -15, 15, _ackley),
    _task("levy", 5, -10, 10, _levy),
    _task("griewank", 5, -20, 20, _griewank),
)
NOISY = (
    _task("hartmann", 6, 0, 1, lambda x: hartmann6(x.tolist(), [1.0, 1.2, 3.0, 3.2]), -3.32237),
    _task("rosenbrock", 4, -2, 2, _valley),
    _task("bowl", 4, 0, 1, lambda x: float(np.sum((x - _BOWL) ** 2))),
    _task("branin", 2, 0, 1, _branin, 0.397887),
)


def regret(search: str, task: Task, seed: int, budget: int, parallel: int, deviation: float) -> float:
    """Return how far the trial with the best reading is above the optimum; the oldest running trial ends first."""
    searching, running = build(search, task, Setting(seed, budget, parallel)), deque[tuple[Any, float]]()
    best, found = math.inf, math.inf
    for k in range(budget):
        if len(running) == parallel:
            searching.tell(*running.popleft())
        asked = searching.ask()
        if asked is None:
            break
        true = task.evaluate(asked[1])
        seen = true + Random(f"{seed}/{k}").gauss(0, deviation)
        running.append((asked[0], seen))
        best, found = min((best, found), (seen, true))
    return found - task.optimum


def _range(task: Task) -> float:
    random = Random(1)
    values = [task.evaluate({v.name: random.uniform(v.low, v.high) for v in task.variables}) for _ in range(_SAMPLES)]
    return max(values) - min(values)


def _lines(searches: list[str], seeds: int, budget: int) -> Iterator[str]:
    for tasks, parallel, noise, kind in ((PEAKS, _AT_ONCE, 0.0, "peaks"), (NOISY, 1, _NOISE, "noisy")):
        for task in tasks:
            deviation = noise * _range(task)
            for search in searches:
                name = search if search == "random" or ":" in search else OWN + search
                found = [regret(name, task, seed, budget, parallel, deviation) for seed in range(seeds)]
                yield f"{kind}  {task.name:12}{search:12}median {median(found):8.3g}  worst {max(found):8.3g}"


def main() -> None:
    given = options(__doc__, seeds=5, budget=60, searches="gp,tpe,random")
    for line in _lines(given.searches.split(","), given.seeds, given.budget):
        print(line, flush=True)


if __name__ == "__main__":
    main()
