"""Algorithms used as in a notebook: no server, no wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from katib.rpc._generated import api_pb2 as pb
from suggestion_services.algorithms import find_entry
from suggestion_services.base import Algorithm, Outcome, PastTrial, Problem
from suggestion_services.base.messages import experiment_spec
from tests.support.suggestion import Assignments, an_experiment


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
    points = algorithm.suggest(trials, first=first, count=count)
    return [{a.name: a.value for a in algorithm.problem.space.format(point)} for point in points]


def search(algorithm: Algorithm, loss: Callable[[Assignments], float], *, budget: int) -> list[PastTrial]:
    """Run a search one by one; a loss of NaN is a trial that diverged."""
    trials: list[PastTrial] = []
    for k in range(budget):
        (point,) = texts(algorithm, trials, first=k)
        value = loss(point)
        outcome = Outcome.BAD if value != value else Outcome.MEASURED  # noqa: PLR0124  # NaN
        trials.append(PastTrial(f"t{k:05}", outcome, point, value))
    return trials
