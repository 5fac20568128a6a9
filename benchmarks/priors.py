"""What beliefs about the best values save or cost: evaluations to a value, with and without priors.

    python -m benchmarks.priors [--algorithms gp,tpe,...] [--seeds 5] [--problems PATTERN]

The value to reach is the median over seeds of the best value without priors after 60 evaluations; a search that does
not get there within 120 counts as 121. Printed are medians over seeds of the evaluations with good, vague, half wrong
and misleading priors, in percent of 60. Targets: at most 50 with good priors, at most 125 with misleading ones.
Algorithms with a resource count it: an evaluation is one full training.

Centers of good priors miss the optimum by a twentieth of the axis, of vague ones by a fifth with twice the width, of
misleading ones by more than half. Half wrong means misleading for every other parameter.
"""

from __future__ import annotations

import fnmatch
import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
from msgspec import structs

from benchmarks.search.own import Searching, number, parameter
from benchmarks.search.problems import Variable
from benchmarks.support import options
from katib.model.types import ParameterPrior, ParameterSpec

GOAL_AT, MOST = 60, 120
_EPOCHS = 27
_KINDS = ("good", "vague", "half wrong", "misleading")
_HALVING = ("asha", "hyperband", "bohb")


@dataclass(frozen=True)
class BelievedProblem:
    """A loss with a known optimum.

    Attributes:
        loss: Of positions in [0, 1], one per parameter; a category is its index divided by their number, plus a half.
    """

    parameters: Sequence[ParameterSpec]
    loss: Callable[[Sequence[float]], float]
    optimum: Sequence[float]


def _numbers(count: int) -> list[ParameterSpec]:
    return [number(f"x{i}", 1e-5, 1e-1, log=True) if i % 2 else number(f"x{i}", -2, 3) for i in range(count)]


def _places(count: int, seed: int) -> list[float]:
    chance = random.Random(seed)
    return [chance.choice((chance.uniform(0.12, 0.38), chance.uniform(0.62, 0.88))) for _ in range(count)]


def _bowl(x: Sequence[float]) -> float:
    far = [(1 + i / 2) * (u - at) for i, (u, at) in enumerate(zip(x, _places(8, 1), strict=True))]
    return sum(d * d for d in far) + 0.3 * sum(a * b for a, b in pairwise(far))


def _valley(x: Sequence[float]) -> float:
    v = [4 * (u - at) + 1 for u, at in zip(x, _places(4, 2), strict=True)]
    return math.log1p(sum(20 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in pairwise(v)))


def _waves(x: Sequence[float]) -> float:
    far = [u - at for u, at in zip(x, _places(5, 3), strict=True)]
    return sum(8 * d * d + 0.4 * (1 - math.cos(14 * d)) for d in far)


def _peaks(x: Sequence[float]) -> float:
    """Peaks of several heights and widths, of which the highest is narrow."""
    at = np.array([_places(6, seed) for seed in (4, 5, 6, 7)])
    heights, widths = np.array([1.0, 0.75, 0.6, 0.5]), np.array([0.35, 0.5, 0.5, 0.6])
    return 1.0 - float(np.max(heights * np.exp(-np.sum((at - np.array(x)) ** 2, axis=1) / widths**2)))


_TRAINING = (
    Variable("lr", "double", 1e-5, 1e-1, True),
    Variable("decay", "double", 1e-7, 1e-2, True),
    Variable("momentum", "double", 0.0, 0.99),
    Variable("width", "int", 16, 1024, True),
    Variable("dropout", "double", 0.0, 0.7),
    Variable("optimizer", "categorical", values=("sgd", "adam", "rmsprop", "lion")),
)


def _training(x: Sequence[float]) -> float:
    """An error rate: the best rate of learning depends on the optimizer, the momentum and the width."""
    lr, decay, momentum, width, dropout, optimizer = x
    kind = min(int(optimizer * 4), 3)
    best = (0.75, 0.5, 0.45, 0.3)[kind] - 0.15 * (momentum - 0.6) - 0.2 * (width - 0.7)
    error = 0.05 + (0.02, 0.0, 0.015, 0.04)[kind] + 0.9 * (lr - best) ** 2 / (0.1 + (lr - best) ** 2)
    error += 0.08 * (decay - 0.35) ** 2 + 0.06 * (momentum - 0.6) ** 2 + 0.1 * (width - 0.7) ** 2
    return error + 0.07 * (dropout - 0.2) ** 2 + 0.03 * abs(dropout - 0.2) * width


PROBLEMS: Mapping[str, BelievedProblem] = {
    "a bowl in eight numbers": BelievedProblem(_numbers(8), _bowl, _places(8, 1)),
    "a bent valley in four": BelievedProblem(_numbers(4), _valley, _places(4, 2)),
    "waves in five": BelievedProblem(_numbers(5), _waves, _places(5, 3)),
    "four peaks in six": BelievedProblem(_numbers(6), _peaks, _places(6, 4)),
    "a training": BelievedProblem(list(map(parameter, _TRAINING)), _training, (0.5, 0.35, 0.6, 0.7, 0.2, 0.375)),
}


def with_priors(problem: BelievedProblem, kind: str, seed: int) -> list[ParameterSpec]:
    chance = random.Random(f"{kind} {seed}")
    space = Searching("random", problem.parameters, {}).problem.space
    found = []
    for i, (spec, p, at) in enumerate(zip(problem.parameters, space.parameters, problem.optimum, strict=True)):
        misleads = kind == "misleading" or (kind == "half wrong" and i % 2 == 0)
        away = 0.55 if misleads else {"good": 0.05, "half wrong": 0.05, "vague": 0.2}[kind]
        side = (1 if at < 0.5 else -1) if misleads else chance.choice((-1, 1))
        u = min(max(at + side * away * chance.uniform(0.8, 1.2), 0.0), 1.0)
        prior = ParameterPrior(center=p.format(p.from_unit(u)))
        if spec.feasible_space.list:
            value = p.format(p.from_unit(at))
            others = [text for text in spec.feasible_space.list if text != value]
            favoured = chance.choice(others) if misleads else value
            prior = ParameterPrior(
                weights={text: 2.0 if text == favoured else 1.0 for text in spec.feasible_space.list}
            )
            if kind != "vague":
                prior = ParameterPrior(center=favoured)
        elif kind == "vague" and spec.feasible_space.distribution == "logUniform":
            low, high = float(spec.feasible_space.min), float(spec.feasible_space.max)
            prior = structs.replace(prior, factor=repr((high / low) ** 0.3))
        elif kind == "vague":
            prior = structs.replace(
                prior, width=repr(0.3 * (float(spec.feasible_space.max) - float(spec.feasible_space.min)))
            )
        found.append(structs.replace(spec, prior=prior))
    return found


def search(
    algorithm: str,
    problem: BelievedProblem,
    parameters: Sequence[ParameterSpec],
    seed: int,
    most: int,
    goal: float = -math.inf,
) -> tuple[float, float]:
    """Search until a value is reached; return the evaluations and the best value of full trainings."""
    settings: dict[str, object] = {"random_state": seed}
    if algorithm in _HALVING:
        parameters = [*parameters, number("epochs", 1, _EPOCHS, whole=True)]
        settings |= {"resource_name": "epochs", "r_l": _EPOCHS}
        settings |= {"rounds": 50} if algorithm == "hyperband" else {}
    searching = Searching(
        algorithm, parameters, settings, budget=None if algorithm in _HALVING else GOAL_AT, parallel=1
    )
    space = searching.problem.space
    spent, best = 0.0, math.inf
    while spent < most and best > goal:
        (proposal,) = searching.suggest()
        point = space.nearest(proposal.assignments.items())
        assert point is not None
        x = [p.to_unit(point[p.name]) for p in space.parameters if p.name != "epochs"]
        loss, share = problem.loss(x), 1.0
        if algorithm in _HALVING:
            epochs = int(proposal.assignments["epochs"])
            share = epochs / _EPOCHS
            loss += 0.2 * (1 + math.sin(7 * x[0] + 5 * x[1])) * (1 / epochs - 1 / _EPOCHS)
        searching.add(proposal, loss)
        spent += share
        if share == 1.0:
            best = min(best, loss)
    return (spent if best <= goal else most + 1), best


def main() -> None:
    algorithms = "gp,tpe,multivariate-tpe,asha,hyperband,bohb"
    given = options(__doc__, algorithms=algorithms, seeds=5, problems="*", kinds=",".join(_KINDS))
    warnings.simplefilter("ignore")
    for algorithm in given.algorithms.split(","):
        for name, problem in PROBLEMS.items():
            if not fnmatch.fnmatch(name, given.problems):
                continue
            found = [search(algorithm, problem, problem.parameters, seed, GOAL_AT)[1] for seed in range(given.seeds)]
            goal = median(found)
            cells = []
            for kind in given.kinds.split(","):
                counts = [
                    search(algorithm, problem, with_priors(problem, kind, seed), seed, MOST, goal)[0]
                    for seed in range(given.seeds)
                ]
                cells.append(f"{kind} {100 * median(counts) / GOAL_AT:4.0f} %")
            print(f"{algorithm:18}{name:26}{'   '.join(cells)}   goal {goal:.2g}", flush=True)


if __name__ == "__main__":
    main()
