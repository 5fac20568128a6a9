"""`gp`, `motpe` and `nsga2` against Optuna's samplers called directly: the hypervolume on ZDT1-3, DTLZ2 and trainings.

    python -m benchmarks.several_objectives [--seeds 5] [--budget 100] [--parallel 1] [--problems PATTERN]

Sources: [Zitzler2000] Comparison of multiobjective evolutionary algorithms: empirical results, Evolutionary Computation
8(2); [Deb2005] Scalable test problems for evolutionary multiobjective optimization. All functions are minimized over
the unit cube. The hypervolume is measured from (1.1, ...), also in shares of the true front's; higher is better.

The published front of ZDT1-3 lies where all parameters but the first are at their lower bound, which flatters a
search that tries bounds. In the moved ones each of these parameters has its optimum inside instead, and the distance to
it, as a share of the largest one, is the parameter of the published function. Fronts and ranges stay the same.

The real problems are trainings of scikit-learn on 400 digits: the error on 400 others against the cost of a prediction,
the logarithm of a number of operations, which is independent of the machine. Their true fronts are unknown, so the
shares are those of an ideal model without error and cost.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from benchmarks.search.own import Searching, number
from katib.model.pareto import Point, hypervolume
from katib.model.types import ObjectiveSpec, ObjectiveTerm

_FRONT_POINTS = 2000
_GOLDEN = (5**0.5 - 1) / 2
RIVALS = ("Optuna NSGAIISampler", "Optuna TPESampler", *["Optuna GPSampler"] * (find_spec("torch") is not None))
"""Optuna's GPSampler needs torch, which is not a dependency here."""


@dataclass(frozen=True)
class SeveralObjectives:
    """A function to minimize.

    Attributes:
        parameters: Number of parameters, each between 0 and 1.
        objectives: Number of values.
    """

    name: str
    parameters: int
    objectives: int
    values: Callable[[Sequence[float]], Point]
    reference: Point
    front: Sequence[Point]


def _zdt_g(x: Sequence[float]) -> float:
    return 1 + 9 * sum(x[1:]) / (len(x) - 1)


def _zdt1(x: Sequence[float]) -> Point:
    g = _zdt_g(x)
    return x[0], g * (1 - math.sqrt(x[0] / g))


def _zdt2(x: Sequence[float]) -> Point:
    g = _zdt_g(x)
    return x[0], g * (1 - (x[0] / g) ** 2)


def _zdt3(x: Sequence[float]) -> Point:
    g = _zdt_g(x)
    return x[0], g * (1 - math.sqrt(x[0] / g) - x[0] / g * math.sin(10 * math.pi * x[0]))


def _dtlz2(x: Sequence[float]) -> Point:
    g = 1 + sum((value - 0.5) ** 2 for value in x[2:])
    a, b = (value * math.pi / 2 for value in x[:2])
    return g * math.cos(a) * math.cos(b), g * math.cos(a) * math.sin(b), g * math.sin(a)


@cache
def _digits() -> tuple[Any, ...]:
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    return features[:400] / 16, labels[:400], features[400:800] / 16, labels[400:800]


def _trained(model: Any, cost: float, most: float) -> Point:
    """Return the error of a model and its cost as a share of the most, both between 0 and 1."""
    train, train_labels, test, test_labels = _digits()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # not converged
        error = 1.0 - float(model.fit(train, train_labels).score(test, test_labels))
    return error, math.log(cost) / math.log(most)


def _forest(x: Sequence[float]) -> Point:
    from sklearn.ensemble import RandomForestClassifier

    trees, depth = round(40 ** x[0]), 1 + min(int(10 * x[1]), 9)
    features = max(0.02, x[2])
    model = RandomForestClassifier(trees, max_depth=depth, max_features=features, random_state=0)
    return _trained(model, trees * depth + 1, 401)


def _network(x: Sequence[float]) -> Point:
    from sklearn.neural_network import MLPClassifier

    units, rate = round(2 * 32 ** x[0]), 10 ** (3 * x[1] - 3.5)
    model = MLPClassifier((units,), learning_rate_init=rate, alpha=10 ** (5 * x[2] - 5), max_iter=25, random_state=0)
    return _trained(model, units, 64)


def _neighbors(x: Sequence[float]) -> Point:
    from sklearn.decomposition import PCA
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline

    components, neighbors = round(32 ** x[0]), 1 + int(19.99 * x[1])
    weights = "distance" if x[2] > 0.5 else "uniform"
    model = make_pipeline(PCA(components, random_state=0), KNeighborsClassifier(neighbors, weights=weights))
    return _trained(model, components * (1 + neighbors), 32 * 21)


def _moved(values: Callable[[Sequence[float]], Point]) -> Callable[[Sequence[float]], Point]:
    """Return a ZDT function whose front lies inside the cube."""

    def moved(x: Sequence[float]) -> Point:
        centers = [0.15 + 0.7 * (i * _GOLDEN % 1) for i in range(1, len(x))]
        return values([x[0], *(abs(v - c) / max(c, 1 - c) for v, c in zip(x[1:], centers, strict=True))])

    return moved


def _line(values: Callable[[Sequence[float]], Point]) -> list[Point]:
    return [values([i / _FRONT_POINTS, *[0.0] * 5]) for i in range(_FRONT_POINTS + 1)]


def _octant() -> list[Point]:
    side = 40
    return [_dtlz2([i / side, j / side, *[0.5] * 5]) for i in range(side + 1) for j in range(side + 1)]


PROBLEMS = (
    SeveralObjectives("ZDT1", 6, 2, _zdt1, (1.1, 1.1), _line(_zdt1)),
    SeveralObjectives("ZDT2", 6, 2, _zdt2, (1.1, 1.1), _line(_zdt2)),
    SeveralObjectives("ZDT3", 6, 2, _zdt3, (1.1, 1.1), _line(_zdt3)),
    SeveralObjectives("moved ZDT1", 6, 2, _moved(_zdt1), (1.1, 1.1), _line(_zdt1)),
    SeveralObjectives("moved ZDT2", 6, 2, _moved(_zdt2), (1.1, 1.1), _line(_zdt2)),
    SeveralObjectives("moved ZDT3", 6, 2, _moved(_zdt3), (1.1, 1.1), _line(_zdt3)),
    SeveralObjectives("DTLZ2", 7, 3, _dtlz2, (1.1, 1.1, 1.1), _octant()),
    SeveralObjectives("forest", 3, 2, _forest, (1.1, 1.1), [(0.0, 0.0)]),
    SeveralObjectives("network", 3, 2, _network, (1.1, 1.1), [(0.0, 0.0)]),
    SeveralObjectives("neighbors", 3, 2, _neighbors, (1.1, 1.1), [(0.0, 0.0)]),
)


def searched_by_us(problem: SeveralObjectives, algorithm: str, *, seed: int, budget: int, parallel: int) -> list[Point]:
    """Return the values of the trials of one of our algorithms; `parallel` of them are requested at a time."""
    searching = Searching(
        algorithm,
        [number(f"x{i}", 0, 1) for i in range(problem.parameters)],
        {"random_state": seed},
        objective=ObjectiveSpec(
            objectives=tuple(ObjectiveTerm(name=f"f{i}", type="minimize") for i in range(problem.objectives))
        ),
        budget=budget,
    )
    while (left := budget - len(searching.trials)) > 0:
        for proposal in searching.suggest(min(parallel, left)):
            searching.add(proposal, *problem.values([float(text) for text in proposal.assignments.values()]))
    return [trial.values for trial in searching.trials]


def searched_by_optuna(
    problem: SeveralObjectives, sampler: str, *, seed: int, budget: int, parallel: int
) -> list[Point]:
    """Return the values of the trials of one of Optuna's samplers, with its defaults."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    made = getattr(optuna.samplers, sampler)(seed=seed)
    study = optuna.create_study(directions=["minimize"] * problem.objectives, sampler=made)
    found: list[Point] = []
    while len(found) < budget:
        trials = [study.ask() for _ in range(min(parallel, budget - len(found)))]
        points = [[trial.suggest_float(f"x{i}", 0, 1) for i in range(problem.parameters)] for trial in trials]
        for trial, point in zip(trials, points, strict=True):
            values = problem.values(point)
            study.tell(trial, list(values))
            found.append(values)
    return found


def share_covered(problem: SeveralObjectives, found: Sequence[Point]) -> float:
    """Return the hypervolume of the found points as a share of the true front's."""
    return hypervolume(found, problem.reference) / hypervolume(problem.front, problem.reference)


def report(
    problems: Sequence[SeveralObjectives], seeds: int, budget: int, parallel: int, algorithms: Sequence[str]
) -> Iterator[str]:
    """Yield the lines of the table: medians over the seeds, and the share of each seed."""
    yield f"{'problem':12}{'algorithm':22}{'share':>6}{'hypervolume':>13}{'seconds':>9}  share of each seed"
    for problem in problems:
        whole = hypervolume(problem.front, problem.reference)
        for name in (*RIVALS, *algorithms):
            shares, seconds = [], []
            for seed in range(seeds):
                searched, its_name = (searched_by_us, name) if name in algorithms else (searched_by_optuna, name[7:])
                begin = time.process_time()
                found = searched(problem, its_name, seed=seed, budget=budget, parallel=parallel)
                seconds.append(time.process_time() - begin)
                shares.append(share_covered(problem, found))
            share = statistics.median(shares)
            figures = f"{share:6.3f}{share * whole:13.4f}{statistics.median(seconds):9.1f}"
            yield f"{problem.name:12}{name:22}{figures}  {' '.join(f'{each:.3f}' for each in shares)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--problems", default="*")
    parser.add_argument("--algorithms", nargs="*", default=["gp", "motpe", "nsga2", "random"])
    options = parser.parse_args()
    problems = [problem for problem in PROBLEMS if fnmatch.fnmatch(problem.name, options.problems)]
    for line in report(problems, options.seeds, options.budget, options.parallel, options.algorithms):
        print(line, flush=True)


if __name__ == "__main__":
    main()
