"""Algorithms used as in a notebook, without server and wire, and functions with known optima to search.

All functions are to be minimized; the optimum is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.algorithms import find_entry
from suggestion_services.base import Algorithm, PastTrial, Problem, TrialOutcome
from suggestion_services.base.algorithm import Proposal
from suggestion_services.base.messages import experiment_spec
from tests.support.suggestion import Assignments, a_parameter, an_experiment


@dataclass(frozen=True)
class Animal:
    """A named function."""

    name: str
    parameters: Sequence[pb.ParameterSpec]
    loss: Callable[[Assignments], float]


def _numbers(point: Assignments) -> list[float]:
    return [float(value) for value in point.values()]


def _sphere(point: Assignments) -> float:
    return sum((x - 0.3) ** 2 for x in _numbers(point))


def _branin(point: Assignments) -> float:
    x, y = _numbers(point)
    bowl = (y - 5.1 * x * x / (4 * math.pi**2) + 5 * x / math.pi - 6) ** 2
    return bowl + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.39788735772973816


def _valley(point: Assignments) -> float:
    """A narrow valley along the diagonal: what each parameter should be depends on the other."""
    x, y = _numbers(point)
    return 100 * (x - y) ** 2 + (x + y - 1.2) ** 2


def _learning_rate(point: Assignments) -> float:
    return (math.log10(float(point["lr"])) + 3) ** 2 + (float(point["momentum"]) - 0.9) ** 2


def _mixed(point: Assignments) -> float:
    penalty = {"adam": 0.0, "sgd": 1.0, "rmsprop": 0.5}[point["optimizer"]]
    depth = abs(int(point["layers"]) - 5) / 5
    return penalty + depth + abs(math.log2(float(point["batch"]) / 64)) / 3 + (float(point["x"]) - 0.7) ** 2


ZOO = (
    Animal("sphere", [a_parameter(f"x{i}", min="-1", max="1") for i in range(4)], _sphere),
    Animal("branin", [a_parameter("x", min="-5", max="10"), a_parameter("y", min="0", max="15")], _branin),
    Animal("valley", [a_parameter("x"), a_parameter("y")], _valley),
    Animal(
        "learning-rate",
        [
            a_parameter("lr", min="1e-6", max="1", distribution=pb.LOG_UNIFORM),
            a_parameter("momentum", min="0", max="1", step="0.05"),
        ],
        _learning_rate,
    ),
    Animal(
        "mixed",
        [
            a_parameter("optimizer", pb.CATEGORICAL, list=["adam", "sgd", "rmsprop"]),
            a_parameter("layers", pb.INT, min="1", max="20"),
            a_parameter("batch", pb.DISCRETE, list=["8", "16", "32", "64", "128", "256"]),
            a_parameter("x"),
        ],
        _mixed,
    ),
)

VALLEY = ZOO[2]


def problem_for(
    name: str,
    parameters: Sequence[pb.ParameterSpec] = (),
    *,
    settings: Mapping[str, object] | None = None,
    max_trial_count: int = 0,
) -> Problem:
    """Return a problem that minimizes."""
    experiment = an_experiment(name, parameters, settings=settings, max_trial_count=max_trial_count)
    return Problem.of(experiment.name, experiment_spec(experiment), find_entry(name).info)


def algorithm_for(
    name: str, parameters: Sequence[pb.ParameterSpec] = (), *, settings: Mapping[str, object] | None = None
) -> Algorithm:
    """Return an algorithm at work on a problem."""
    algorithm: Algorithm = find_entry(name).load()(problem_for(name, parameters, settings=settings))
    return algorithm


def texts(algorithm: Algorithm, trials: Sequence[PastTrial], *, first: int, count: int = 1) -> list[Assignments]:
    """Return suggestions as they would be assigned."""
    return [one.assignments for one in _proposals(algorithm, trials, first, count)]


def _proposals(algorithm: Algorithm, trials: Sequence[PastTrial], first: int, count: int) -> list[Proposal]:
    found = algorithm.suggest(trials, first=first, count=count)
    return [one if isinstance(one, Proposal) else Proposal(algorithm.problem.space.format(one)) for one in found]


def search(algorithm: Algorithm, loss: Callable[[Assignments], float], *, budget: int) -> list[PastTrial]:
    """Run a search one by one; a loss of NaN is a trial that diverged."""
    trials: list[PastTrial] = []
    for k in range(budget):
        (proposal,) = _proposals(algorithm, trials, k, 1)
        value = loss(proposal.assignments)
        outcome = TrialOutcome.BAD if value != value else TrialOutcome.MEASURED  # noqa: PLR0124  # NaN
        trials.append(PastTrial(f"t{k:05}", outcome, proposal.assignments, value, labels=proposal.labels))
    return trials
