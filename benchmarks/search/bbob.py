"""The noiseless functions of the Black-Box Optimization Benchmarking workshops, from the package `ioh`.

Source: [Hansen2009] Real-Parameter Black-Box Optimization Benchmarking 2009: Noiseless Functions Definitions, INRIA
RR-6829. Bounds are -5 and 5 in each dimension.
"""

from __future__ import annotations

from collections.abc import Iterator

import ioh

from benchmarks.search.problems import Task, Values, doubles

DIMENSIONS = (2, 6, 10)
# By number: separable, moderately and badly conditioned, and multimodal ones in both; three are in both splits.
FUNCTIONS = {
    "development": (1, 2, 3, 6, 7, 8, 10, 13, 15, 17, 20, 21),
    "final": (1, 4, 6, 8, 9, 11, 12, 14, 16, 18, 22, 24),
}
INSTANCES = {"development": 1, "final": 7}


def tasks(split: str) -> Iterator[Task]:
    for function in FUNCTIONS[split]:
        for n in DIMENSIONS:
            yield task(function, INSTANCES[split], n)


def task(function: int, instance: int, n: int) -> Task:
    """Return a function in n dimensions."""
    problem = ioh.get_problem(function, instance=instance, dimension=n, problem_class=ioh.ProblemClass.BBOB)
    names = [f"x{i}" for i in range(n)]

    def evaluate(values: Values) -> float:
        return float(problem([float(values[name]) for name in names]))

    variables = doubles(" ".join(names), -5.0, 5.0)
    return Task(f"bbob-{function}-{n}d", f"bbob {n}d", variables, evaluate, problem.optimum.y, resolution=1e-4)
