"""Functions with variables that exist only for certain values of others.

Searches without support for conditions get all variables, and the function ignores absent ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from benchmarks.search.problems import Task, Values, Variable

INSTANCES = {"development": 5, "final": 29}


def tasks(split: str) -> Iterator[Task]:
    yield _models(INSTANCES[split])
    yield _network(INSTANCES[split])


def _models(instance: int) -> Task:
    """Return a choice between four models with two or three variables each, one of which is best."""
    random = Random(f"models {instance}")
    models = {"svm": 2, "forest": 3, "boosting": 3, "linear": 2}
    floors = {name: random.uniform(0.05, 0.3) for name in models}
    floors[random.choice(["svm", "forest", "boosting"])] = 0.0
    centers = {name: [random.uniform(0.15, 0.85) for _ in range(n)] for name, n in models.items()}
    scales = {name: [random.uniform(0.5, 4.0) for _ in range(n)] for name, n in models.items()}

    def evaluate(values: Values) -> float:
        name = str(values["model"])
        places = [float(values[f"{name}_{i}"]) for i in range(models[name])]
        bowl = sum(s * (x - c) ** 2 for s, x, c in zip(scales[name], places, centers[name], strict=True))
        return floors[name] + bowl + 0.5 * (places[0] - centers[name][0]) * (places[1] - centers[name][1])

    variables = [Variable("model", "categorical", values=tuple(models))]
    variables += [
        Variable(f"{name}_{i}", "double", when=("model", (name,))) for name, n in models.items() for i in range(n)
    ]
    return Task("conditional-models", "conditional", tuple(variables), evaluate, 0.0)


def _network(instance: int) -> Task:
    """Return a network: a width for each layer, and variables of one optimizer only, nested."""
    random = Random(f"network {instance}")
    best_layers = random.randint(2, 3)
    widths = [random.uniform(4, 7.5) for _ in range(4)]
    rates = {"sgd": random.uniform(-2.5, -1), "adam": random.uniform(-4, -2.5)}
    momentum, blend = random.uniform(0.5, 0.95), random.uniform(0.2, 0.8)

    def evaluate(values: Values) -> float:
        layers, optimizer = int(values["layers"]), str(values["optimizer"])
        off = sum((math.log2(float(values[f"width{i}"])) - widths[i]) ** 2 for i in range(layers)) / layers
        loss = 0.12 * abs(layers - best_layers) + 0.08 * off
        loss += 0.2 * (math.log10(float(values["rate"])) - rates[optimizer]) ** 2
        if optimizer == "adam":
            return loss + 0.1
        loss += 0.8 * (float(values["momentum"]) - momentum) ** 2
        if values["average"] == "yes":
            return loss + 0.5 * (float(values["blend"]) - blend) ** 2
        return loss + 0.05

    names = tuple(str(n) for n in range(1, 5))
    variables = (
        Variable("layers", "discrete", values=names),
        *(Variable(f"width{i}", "int", 4, 512, log=True, when=("layers", names[i:])) for i in range(4)),
        Variable("rate", "double", 1e-6, 1.0, log=True),
        Variable("optimizer", "categorical", values=("adam", "sgd")),
        Variable("momentum", "double", 0.0, 0.99, when=("optimizer", ("sgd",))),
        Variable("average", "categorical", values=("no", "yes"), when=("optimizer", ("sgd",))),
        Variable("blend", "double", 0.0, 1.0, when=("average", ("yes",))),
    )
    # Widths are whole numbers, so the least value is a little above zero.
    rest = sum((math.log2(round(2**w)) - w) ** 2 for w in widths[:best_layers]) / best_layers
    return Task("conditional-network", "conditional", variables, evaluate, 0.08 * rest)
