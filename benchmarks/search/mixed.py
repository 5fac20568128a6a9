"""Functions of several kinds of variables, with optima known by construction or by enumeration.

An instance is a number from which shifts, weights and tables are drawn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from random import Random

from benchmarks.search.problems import Task, Values, Variable, doubles

INSTANCES = {"development": 11, "final": 47}
_LETTERS = ("a", "b", "c", "d", "e")


def tasks(split: str) -> Iterator[Task]:
    instance = INSTANCES[split]
    yield _shifted(instance)
    yield _interacting(instance)
    yield _training_like(instance)


def _shifted(instance: int) -> Task:
    """Return a bowl whose center depends on two categories, over three doubles, two ints and a list of numbers."""
    random = Random(f"shifted {instance}")
    places = {pair: [random.uniform(0.15, 0.85) for _ in range(5)] for pair in itertools.product(_LETTERS, "xyz")}
    base = [random.uniform(0.25, 0.75) for _ in range(5)]
    heights = {pair: random.uniform(0.05, 1.0) for pair in places}
    best = random.choice(list(places))
    heights[best] = 0.0
    weights = [10 ** random.uniform(-0.7, 0.7) for _ in range(5)]
    sizes = ("8", "16", "32", "64", "128")
    best_size = random.randrange(len(sizes))

    def evaluate(values: Values) -> float:
        pair = str(values["shape"]), str(values["side"])
        point = [float(values[f"x{i}"]) for i in range(3)] + [float(values["n"]) / 12, float(values["m"]) / 30]
        # The ints' optimum is moved to a feasible value.
        center = [0.6 * b + 0.4 * p for b, p in zip(base, places[pair], strict=True)]
        center[3:] = [round(center[3] * 12) / 12, round(center[4] * 30) / 30]
        bowl = sum(w * (x - c) ** 2 for w, x, c in zip(weights, point, center, strict=True))
        return bowl + heights[pair] + 0.02 * abs(sizes.index(str(values["size"])) - best_size) ** 1.5

    variables = (
        *doubles("x0 x1 x2", 0.0, 1.0),
        Variable("n", "int", 0, 12),
        Variable("m", "int", 0, 30),
        Variable("size", "discrete", values=sizes),
        Variable("shape", "categorical", values=_LETTERS),
        Variable("side", "categorical", values=("x", "y", "z")),
    )
    return Task("mixed-shifted", "mixed", variables, evaluate, 0.0)


def _interacting(instance: int) -> Task:
    """Return a sum of tables over neighbouring pairs of six categories, as in NK landscapes."""
    random = Random(f"interacting {instance}")
    n = 6
    single = [{value: random.gauss(0, 1) for value in _LETTERS} for _ in range(n)]
    paired = [{pair: random.gauss(0, 0.7) for pair in itertools.product(_LETTERS, _LETTERS)} for _ in range(n)]

    def cost(point: tuple[str, ...]) -> float:
        return sum(single[i][point[i]] + paired[i][point[i], point[(i + 1) % n]] for i in range(n))

    def evaluate(values: Values) -> float:
        return cost(tuple(str(values[f"c{i}"]) for i in range(n)))

    variables = tuple(Variable(f"c{i}", "categorical", values=_LETTERS) for i in range(n))
    return Task("mixed-categories", "mixed", variables, evaluate, min(map(cost, itertools.product(_LETTERS, repeat=n))))


def _training_like(instance: int) -> Task:
    """Return a typical training loss: interacting rates on a logarithmic axis, cliffs, and choices."""
    random = Random(f"training {instance}")
    optimizers = ("sgd", "adam", "rmsprop", "adagrad")
    rates = {name: random.uniform(-4.0, -1.5) for name in optimizers}
    losses = {name: random.uniform(0.05, 0.4) for name in optimizers}
    losses[random.choice(optimizers)] = 0.0
    decay, dropout, width, depth = (
        random.uniform(-5, -2.5),
        random.uniform(0.1, 0.4),
        random.randint(90, 400),
        random.randint(2, 6),
    )

    def evaluate(values: Values) -> float:
        name = str(values["optimizer"])
        rate = math.log10(float(values["rate"]))
        batch = math.log2(float(values["batch"]))
        off = rate - rates[name] - 0.15 * (batch - 6)
        diverged = 3.0 * max(off - 0.8, 0.0)
        return (
            losses[name]
            + 0.35 * off**2
            + diverged
            + 0.06 * (math.log10(float(values["decay"])) - decay) ** 2
            + 1.5 * (float(values["dropout"]) - dropout) ** 2
            + 0.25 * math.log(float(values["width"]) / width) ** 2
            + 0.03 * (int(values["depth"]) - depth) ** 2
            + 0.01 * (batch - 6) ** 2
        )

    variables = (
        *doubles("rate", 1e-6, 1.0, log=True),
        *doubles("decay", 1e-7, 1e-1, log=True),
        *doubles("dropout", 0.0, 0.8),
        Variable("width", "int", 8, 1024, log=True),
        Variable("depth", "int", 1, 10),
        Variable("batch", "discrete", values=("16", "32", "64", "128", "256")),
        Variable("optimizer", "categorical", values=optimizers),
    )
    return Task("mixed-training", "mixed", variables, evaluate, 0.0)
