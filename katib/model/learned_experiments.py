"""Experiments whose trials another one learns from: named by the user, or found for it.

`auto` gets experiments of the same namespace without being asked. The search happens once, at submission, and its
result is recorded as an annotation: users can see it, and a restart changes nothing. It finds the newest experiments
that have ended, optimize the same metric in the same direction, have every parameter of the new one with the same type,
and had their best trial at a point of the new search space. The algorithm itself judges the value of their trials.

Nothing is searched for an experiment with a seed, which is meant to be repeatable, or with several objectives, because
the models of `auto` do not learn from other experiments then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from katib.errors import FieldError
from katib.model.algorithms import SEED
from katib.model.conditions import has_ended
from katib.model.defaults import default_algorithm, with_defaults
from katib.model.names import CONFIRMS_LABEL, LEARNS_FROM_ANNOTATION, NOTHING
from katib.model.types import Experiment, ParameterAssignment, ParameterSpec

MOST_FOUND = 5
LEAST_ENDED = 10
"""Minimum number of trials with a value: fewer reveal little about a search space."""
MOST_ENDED = 1_000
"""Maximum number of trials, since they are sent with each request; a larger experiment has to be named by the user."""

_LEARNING = "auto"
_SEEDS = ("random_state", SEED.name)
_NEVER = datetime.min.replace(tzinfo=UTC)

CheckPoint = Callable[[Sequence[ParameterSpec], Sequence[ParameterAssignment]], Sequence[FieldError]]
"""Returns errors if assignments are not a point of the space of these parameters."""


def learned_experiments(experiment: Experiment) -> tuple[str, ...]:
    """Return the names of the experiments whose trials are history for this one."""
    start = experiment.spec.warm_start
    noted = experiment.metadata.annotations.get(LEARNS_FROM_ANNOTATION, NOTHING)
    if start is None and noted == NOTHING:
        return ()
    found = (name.strip() for name in ("" if noted.strip() == NOTHING else noted).split(","))
    named = start.experiments if start is not None else ()
    return tuple(dict.fromkeys((*named, *(name for name in found if name not in ("", experiment.name)))))


def looks_for_experiments(experiment: Experiment) -> bool:
    """Return whether other experiments are searched for a new one to learn from."""
    spec = experiment.spec
    if LEARNS_FROM_ANNOTATION in experiment.metadata.annotations or spec.warm_start is not None:
        return False
    algorithm = default_algorithm(spec)
    if algorithm is None or algorithm.algorithm_name != _LEARNING:
        return False
    is_seeded = any(setting.name in _SEEDS for setting in algorithm.algorithm_settings)
    return not is_seeded and bool(spec.parameters) and spec.objective is not None and not spec.objective.objectives


def found_experiments(
    experiment: Experiment, others: Iterable[Mapping[str, Any]], check_point: CheckPoint
) -> tuple[str, ...]:
    """Return the names of the stored experiments that a new experiment learns from, newest first."""
    wanted = with_defaults(experiment)
    completed = (Experiment.read(other) for other in others if (other.get("status") or {}).get("completionTime"))
    alike = [other for other in completed if _is_alike(wanted, other, check_point)]
    alike.sort(key=lambda other: (other.status.completion_time or _NEVER, other.name), reverse=True)
    return tuple(other.name for other in alike[:MOST_FOUND])


def _is_alike(experiment: Experiment, other: Experiment, check_point: CheckPoint) -> bool:
    spec, status = other.spec, other.status
    measured = status.trials_succeeded + status.trials_early_stopped
    if other.name == experiment.name or not has_ended(status.conditions) or not LEAST_ENDED <= measured <= MOST_ENDED:
        return False
    wanted, sought = experiment.spec.objective, spec.objective
    if CONFIRMS_LABEL in other.metadata.labels:  # its trials repeat a few points
        return False
    if wanted is None or sought is None or sought.objectives or other.metadata.deletion_timestamp is not None:
        return False
    if (sought.objective_metric_name, sought.type) != (wanted.objective_metric_name, wanted.type):
        return False
    types = {parameter.name: parameter.parameter_type for parameter in spec.parameters}
    parameters = experiment.spec.parameters
    if any(types.get(parameter.name) != parameter.parameter_type for parameter in parameters):
        return False
    names = {parameter.name for parameter in parameters}
    best = [known for known in status.current_optimal_trial.parameter_assignments if known.name in names]
    errors = check_point(parameters, best)
    return bool(best) and all(error.origin == "assignment-not-absent" for error in errors)
