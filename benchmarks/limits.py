"""Searches with limits: constraints whose optimum lies on the bound, and trials that fail.

    python -m benchmarks.limits [--seeds 5] [--budget 60] [--searches gp,tpe,random]

Four numbers between 0 and 1 are searched for the least loss. About one in eight random points keeps the constraints. A
fifth of the trials fails by chance; or every trial of a region fails, beside the optimum or around it. Printed are
medians and the worst over seeds of the distance to the optimum, and the number of trials with a value that counts.
Rivals are samplers of Optuna; its GPSampler takes part if torch is installed.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from benchmarks.search.own import Searching, number
from benchmarks.support import options
from katib.model.types import MetricConstraint, ObjectiveSpec, ObjectiveType
from suggestion_services.base import PastTrial, TrialOutcome

Array = npt.NDArray[np.float64]
_COUNT = 4
_NAMES = [f"x{i}" for i in range(_COUNT)]
_WEIGHTS = np.array([1.0, 0.8, 0.6, 0.5])


@dataclass(frozen=True)
class LimitedProblem:
    """A loss with a constraint, or with failures.

    Attributes:
        name: Printed.
        loss: Of a point (4,).
        constraint: At most 0 if kept; None if there is none.
        fails: Whether a trial at a point fails, given a seeded source of chance.
        forbidden: At most 0 outside the failing region, for the true optimum.
    """

    name: str
    loss: Callable[[Array], float]
    constraint: Callable[[Array], float] | None = None
    fails: Callable[[Array, random.Random], bool] = lambda _x, _chance: False
    forbidden: tuple[Callable[[Array], float], ...] = ()

    @property
    def optimum(self) -> float:
        """The least loss that is allowed, by SLSQP from eighty starts for each part of the allowed space."""
        starts = np.random.default_rng(0).random((80, _COUNT))
        limits = [self.constraint] if self.constraint else list(self.forbidden) or [lambda _x: -1.0]
        found = [
            (float(end.fun), limit(end.x))
            for limit in limits
            for start in starts
            for end in [
                minimize(
                    self.loss,
                    start,
                    bounds=[(0, 1)] * _COUNT,
                    constraints=[{"type": "ineq", "fun": lambda x, limit=limit: -limit(x)}],
                )
            ]
        ]
        return min(value for value, beyond in found if beyond < 1e-7)


def _bowl(x: Array) -> float:
    return float(np.sum((x - np.array([0.3, 0.62, 0.45, 0.7])) ** 2))


PROBLEMS = (
    LimitedProblem("a line in a ball", lambda x: -float(_WEIGHTS @ x), lambda x: float(x @ x) - 0.79**2),
    LimitedProblem("a bowl behind a plane", lambda x: float(np.sum((x - 0.8) ** 2)), lambda x: float(x.sum()) - 1.3),
    LimitedProblem(
        "waves behind waves",
        lambda x: _bowl(x) + 0.1 * float(np.sum(np.cos(9 * x))),
        lambda x: 0.45 - float(x[0] * (1 - x[1]) + 0.3 * x[2]) + 0.2 * math.sin(5 * x[3]),
    ),
    LimitedProblem("failures by chance", _bowl, fails=lambda _x, chance: chance.random() < 0.2),
    LimitedProblem("a region beside the optimum fails", _bowl, fails=lambda x, _: bool(x[0] + x[1] > 1.1)),
    LimitedProblem(
        "a region around the optimum fails",
        _bowl,
        fails=lambda x, _: bool(x[0] + x[1] > 0.8 and x[2] > 0.3),
        forbidden=(lambda x: float(x[0] + x[1]) - 0.8, lambda x: float(x[2]) - 0.3),
    ),
)


class _OwnSearch:
    """One of our algorithms."""

    def __init__(self, algorithm: str, problem: LimitedProblem, seed: int, budget: int) -> None:
        bounds = (MetricConstraint(metric_name="c", max=0.0),) if problem.constraint else ()
        objective = ObjectiveSpec(type=ObjectiveType.MINIMIZE, objective_metric_name="loss", constraints=bounds)
        parameters = [number(name, 0, 1) for name in _NAMES]
        self._search = Searching(
            algorithm, parameters, {"random_state": seed}, objective=objective, budget=budget, parallel=1
        )

    def ask(self) -> tuple[Any, Array]:
        (proposal,) = self._search.suggest()
        return proposal, np.array([float(proposal.assignments[name]) for name in _NAMES])

    def tell(self, proposal: Any, value: float, violations: tuple[float, ...]) -> None:
        failed, name = math.isnan(value), f"t{len(self._search.trials):05}"
        outcome = TrialOutcome.BAD if failed else TrialOutcome.MEASURED
        self._search.trials.append(
            PastTrial(name, outcome, proposal.assignments, value, violations=violations, labels=proposal.labels)
        )


class _OptunaSearch:
    """A sampler of Optuna."""

    def __init__(self, sampler: str, problem: LimitedProblem, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        given: dict[str, Any] = {"seed": seed}
        if problem.constraint and sampler != "RandomSampler":
            given["constraints_func"] = lambda trial: trial.user_attrs["violations"]
        self._failed = optuna.trial.TrialState.FAIL
        self._study = optuna.create_study(sampler=getattr(optuna.samplers, sampler)(**given))

    def ask(self) -> tuple[Any, Array]:
        trial = self._study.ask()
        return trial, np.array([trial.suggest_float(name, 0, 1) for name in _NAMES])

    def tell(self, trial: Any, value: float, violations: tuple[float, ...]) -> None:
        if violations:
            trial.set_user_attr("violations", violations)
        if math.isnan(value):
            self._study.tell(trial, state=self._failed)
        else:
            self._study.tell(trial, value)


def distance(search: str, problem: LimitedProblem, optimum: float, seed: int, budget: int) -> tuple[float, int]:
    """Return how far the best allowed loss is from the optimum, and how many trials count."""
    own = not search.endswith("Sampler")
    one = _OwnSearch(search, problem, seed, budget) if own else _OptunaSearch(search, problem, seed)
    chance, losses = random.Random(seed), list[float]()
    for _ in range(budget):
        handle, x = one.ask()
        failed = problem.fails(x, chance)
        violations = (problem.constraint(x),) if problem.constraint else ()
        loss = math.nan if failed else problem.loss(x)
        one.tell(handle, loss, violations)
        if not failed and all(beyond <= 0 for beyond in violations):
            losses.append(loss)
    return min(losses, default=math.inf) - optimum, len(losses)


def _lines(searches: list[str], seeds: int, budget: int) -> Iterator[str]:
    for problem in PROBLEMS:
        optimum = problem.optimum
        for search in searches:
            found = [distance(search, problem, optimum, seed, budget) for seed in range(seeds)]
            far = [one for one, _ in found]
            counts = " ".join(str(count) for _, count in found)
            yield f"{problem.name:36}{search:15}median {median(far):8.2g}  worst {max(far):8.2g}  count {counts}"


def main() -> None:
    rivals = ["GPSampler"] * (find_spec("torch") is not None) + ["TPESampler"]
    given = options(__doc__, seeds=5, budget=60, searches=",".join(["gp", "tpe", *rivals, "random"]))
    warnings.simplefilter("ignore")
    for line in _lines(given.searches.split(","), given.seeds, given.budget):
        print(line, flush=True)


if __name__ == "__main__":
    main()
