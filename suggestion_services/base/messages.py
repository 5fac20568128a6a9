"""From gRPC messages to what algorithms take, and back.

Everything that comes in is suspect: enums may hold numbers that the contract does not know, and fields may be absent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from katib.api.metrics import parse_value
from katib.api.types import (
    AlgorithmSetting,
    AlgorithmSpec,
    Distribution,
    ExperimentSpec,
    FeasibleSpace,
    ObjectiveSpec,
    ObjectiveType,
    ParameterSpec,
    ParameterType,
)
from katib.errors import FieldError, InvalidError
from katib.rpc._generated import api_pb2
from suggestion_services.base.algorithm import Outcome, PastTrial

if TYPE_CHECKING:
    from katib.space import Point, SearchSpace

_PARAMETER_TYPES = {
    api_pb2.DOUBLE: ParameterType.DOUBLE,
    api_pb2.INT: ParameterType.INT,
    api_pb2.DISCRETE: ParameterType.DISCRETE,
    api_pb2.CATEGORICAL: ParameterType.CATEGORICAL,
}
_DISTRIBUTIONS = {
    api_pb2.DISTRIBUTION_UNSPECIFIED: Distribution.UNIFORM,
    api_pb2.UNIFORM: Distribution.UNIFORM,
    api_pb2.LOG_UNIFORM: Distribution.LOG_UNIFORM,
    api_pb2.NORMAL: Distribution.NORMAL,
    api_pb2.LOG_NORMAL: Distribution.LOG_NORMAL,
}
_OBJECTIVE_TYPES = {
    api_pb2.UNKNOWN: "",
    api_pb2.MINIMIZE: ObjectiveType.MINIMIZE,
    api_pb2.MAXIMIZE: ObjectiveType.MAXIMIZE,
}

_STATUS = api_pb2.TrialStatus
_PENDING = (_STATUS.CREATED, _STATUS.RUNNING)
_ENDED = (_STATUS.SUCCEEDED, _STATUS.EARLYSTOPPED)


def experiment_spec(message: api_pb2.Experiment) -> ExperimentSpec:
    """Return the part of the experiment that a suggestion service needs.

    Raises:
        InvalidError: An enum holds a number that the contract does not know.
    """
    spec = message.spec
    if spec.objective.type not in _OBJECTIVE_TYPES:
        raise _unknown_number("spec.objective.type", spec.objective.type)
    return ExperimentSpec(
        parameters=tuple(
            _parameter_spec(parameter, f"spec.parameters[{i}]")
            for i, parameter in enumerate(spec.parameter_specs.parameters)
        ),
        objective=ObjectiveSpec(
            type=_OBJECTIVE_TYPES[spec.objective.type],
            goal=spec.objective.goal,
            objective_metric_name=spec.objective.objective_metric_name,
        ),
        algorithm=AlgorithmSpec(
            algorithm_name=spec.algorithm.algorithm_name,
            algorithm_settings=tuple(
                AlgorithmSetting(name=setting.name, value=setting.value)
                for setting in spec.algorithm.algorithm_settings
            ),
        ),
        max_trial_count=spec.max_trial_count or None,
    )


def _parameter_spec(message: api_pb2.ParameterSpec, path: str) -> ParameterSpec:
    space = message.feasible_space
    if message.parameter_type not in _PARAMETER_TYPES:
        raise _unknown_number(f"{path}.parameterType", message.parameter_type)
    if space.distribution not in _DISTRIBUTIONS:
        raise _unknown_number(f"{path}.feasibleSpace.distribution", space.distribution)
    return ParameterSpec(
        name=message.name,
        parameter_type=_PARAMETER_TYPES[message.parameter_type],
        feasible_space=FeasibleSpace(
            min=space.min,
            max=space.max,
            step=space.step,
            list=tuple(space.list),
            distribution=_DISTRIBUTIONS[space.distribution],
        ),
    )


def _unknown_number(path: str, number: int) -> InvalidError:
    cause = f"{number} is no known value of this enum"
    return InvalidError([FieldError(path, cause, "use a value of api.v1.beta1", "enum-unknown")])


def past_trial(message: api_pb2.Trial, objective: str) -> PastTrial:
    """Return a trial as algorithms see it; never fails, whatever the message holds.

    Args:
        message: The trial.
        objective: Name of the objective metric of the experiment, for trials that do not carry one.
    """
    metric = message.spec.objective.objective_metric_name or objective
    outcome, value = _outcome(message.status.condition, _reading(message, metric))
    assignments = {a.name: a.value for a in message.spec.parameter_assignments.assignments}
    seconds = math.nan
    if outcome is Outcome.MEASURED:
        seconds = _seconds(message.status.start_time, message.status.completion_time)
    return PastTrial(message.name, outcome, assignments, value, seconds)


def _reading(message: api_pb2.Trial, metric: str) -> float | None:
    """Return the number that was measured, NaN and infinities included; None when there is none."""
    text = next((m.value for m in message.status.observation.metrics if m.name == metric), None)
    return None if text is None else parse_value(text)


def _outcome(condition: int, value: float | None) -> tuple[Outcome, float]:
    if condition in _PENDING:
        return Outcome.PENDING, math.nan
    if condition in _ENDED and value is not None:
        return (Outcome.MEASURED, value) if math.isfinite(value) else (Outcome.BAD, math.nan)
    if condition in (_STATUS.FAILED, _STATUS.EARLYSTOPPED):
        return Outcome.BAD, math.nan
    return Outcome.SILENT, math.nan


def _seconds(start: str, end: str) -> float:
    try:
        return max((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds(), 0.0)
    except (ValueError, TypeError):  # absent, unreadable, or one with and one without time zone
        return math.nan


def reply(space: SearchSpace, points: Sequence[Point]) -> api_pb2.GetSuggestionsReply:
    """Return the message that carries these points."""
    parameters = space.parameters
    return api_pb2.GetSuggestionsReply(
        parameter_assignments=[
            api_pb2.GetSuggestionsReply.ParameterAssignments(
                assignments=[
                    api_pb2.ParameterAssignment(name=p.name, value=p.format(point[p.name])) for p in parameters
                ]
            )
            for point in points
        ]
    )
