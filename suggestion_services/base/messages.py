"""Conversion from gRPC messages to inputs of algorithms, and back.

Input is not trusted: enums may hold unknown numbers, and fields may be absent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from katib.errors import InvalidError, invalid
from katib.model.metrics import parse_value
from katib.model.names import STOPPED_AT_LABEL
from katib.model.types import (
    AlgorithmSetting,
    AlgorithmSpec,
    Distribution,
    ExperimentSpec,
    FeasibleSpace,
    GraphConfig,
    InitialTrial,
    MetricConstraint,
    NasConfig,
    ObjectiveSpec,
    ObjectiveTerm,
    Operation,
    ParameterAssignment,
    ParameterCondition,
    ParameterPrior,
    ParameterSpec,
)
from katib.wire.rpc._generated import api_pb2
from katib.wire.rpc.convert import DISTRIBUTIONS, OBJECTIVE_TYPES, PARAMETER_TYPES
from suggestion_services.base.algorithm import PastTrial, Proposal, TrialOutcome

if TYPE_CHECKING:
    from katib.model.space import Point, SearchSpace

_PARAMETER_TYPES = {number: kind for kind, number in PARAMETER_TYPES.items()}
_DISTRIBUTIONS = {number: kind for kind, number in DISTRIBUTIONS.items()}
_DISTRIBUTIONS[api_pb2.DISTRIBUTION_UNSPECIFIED] = Distribution.UNIFORM
_OBJECTIVE_TYPES = {api_pb2.UNKNOWN: "", **{number: kind for kind, number in OBJECTIVE_TYPES.items()}}

_STATUS = api_pb2.TrialStatus
_PENDING = (_STATUS.CREATED, _STATUS.RUNNING)
_ENDED = (_STATUS.SUCCEEDED, _STATUS.EARLYSTOPPED)


def experiment_spec(message: api_pb2.Experiment) -> ExperimentSpec:
    """Return the part of the experiment that a suggestion service needs.

    Raises:
        InvalidError: An enum holds an unknown number.
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
            objectives=tuple(
                _objective_term(term, f"spec.objective.objectives[{i}]")
                for i, term in enumerate(spec.objective.objectives)
            ),
            constraints=tuple(map(_constraint, spec.objective.constraints)),
        ),
        algorithm=AlgorithmSpec(
            algorithm_name=spec.algorithm.algorithm_name,
            algorithm_settings=tuple(
                AlgorithmSetting(name=setting.name, value=setting.value)
                for setting in spec.algorithm.algorithm_settings
            ),
        ),
        early_stopping=AlgorithmSpec(algorithm_name=spec.early_stopping.algorithm_name)
        if spec.early_stopping.algorithm_name
        else None,
        max_trial_count=spec.max_trial_count or None,
        parallel_trial_count=spec.parallel_trial_count or None,
        nas_config=_nas_config(spec.nas_config) if spec.HasField("nas_config") else None,
        parameter_constraints=tuple(spec.parameter_constraints),
        initial_trials=tuple(
            InitialTrial(
                parameter_assignments=tuple(ParameterAssignment(name=a.name, value=a.value) for a in one.assignments)
            )
            for one in spec.fixed_assignments
        ),
    )


def _objective_term(message: api_pb2.ObjectiveTerm, path: str) -> ObjectiveTerm:
    if message.type not in _OBJECTIVE_TYPES:
        raise _unknown_number(f"{path}.type", message.type)
    goal = message.goal if message.HasField("goal") else None
    return ObjectiveTerm(name=message.name, type=_OBJECTIVE_TYPES[message.type], goal=goal)


def _constraint(message: api_pb2.MetricConstraint) -> MetricConstraint:
    return MetricConstraint(
        metric_name=message.metric_name,
        min=message.min if message.HasField("min") else None,
        max=message.max if message.HasField("max") else None,
    )


def _nas_config(message: api_pb2.NasConfig) -> NasConfig:
    graph = message.graph_config
    path = "spec.nasConfig.operations"
    return NasConfig(
        graph_config=GraphConfig(
            num_layers=graph.num_layers or None,
            input_sizes=tuple(graph.input_sizes),
            output_sizes=tuple(graph.output_sizes),
        ),
        operations=tuple(
            Operation(
                operation_type=operation.operation_type,
                parameters=tuple(
                    _parameter_spec(parameter, f"{path}[{i}].parameters[{j}]")
                    for j, parameter in enumerate(operation.parameter_specs.parameters)
                ),
            )
            for i, operation in enumerate(message.operations.operation)
        ),
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
            step=_whole_step(space.step) if message.parameter_type == api_pb2.INT else space.step,
            list=tuple(space.list),
            distribution=_DISTRIBUTIONS[space.distribution],
        ),
        when=ParameterCondition(parameter=message.when.parameter, values=tuple(message.when.values))
        if message.HasField("when")
        else None,
        prior=_prior(message.prior) if message.HasField("prior") else None,
    )


def _prior(message: api_pb2.ParameterPrior) -> ParameterPrior:
    weights = {value: message.weights[value] for value in sorted(message.weights)}
    return ParameterPrior(center=message.center, factor=message.factor, width=message.width, weights=weights)


def _whole_step(text: str) -> str:
    """Return the step of an int parameter; Katib's services accept fractions, which are rounded, at least to 1.

    Text that is not a positive number is returned unchanged, and refused later.
    """
    step = parse_value(text) if text else None
    if step is None or not math.isfinite(step) or step <= 0 or step.is_integer():
        return text
    return str(max(round(step), 1))


def _unknown_number(path: str, number: int) -> InvalidError:
    cause = f"{number} is an unknown value of this enum"
    return invalid(path, cause, "use a value of api.v1.beta1", "enum-unknown")


def past_trial(message: api_pb2.Trial, objective: ObjectiveSpec, *, is_earlier: bool = False) -> PastTrial:
    """Convert a trial; never fails, whatever the message holds.

    Args:
        objective: Of the experiment; its metric is the default of trials without one.
        is_earlier: Whether the trial is from another experiment or a file.
    """
    metric = message.spec.objective.objective_metric_name or objective.objective_metric_name
    outcome, value = _outcome(message.status.condition, _reading(message, metric))
    others = tuple(_number(message, term.name) for term in objective.terms[1:])
    if outcome is TrialOutcome.MEASURED and not all(map(math.isfinite, others)):
        outcome, value = TrialOutcome.BAD, math.nan
    seconds = math.nan
    if outcome is TrialOutcome.MEASURED:
        seconds = _seconds(message.status.start_time, message.status.completion_time)
    return PastTrial(
        message.name,
        outcome,
        {a.name: a.value for a in message.spec.parameter_assignments.assignments},
        value,
        seconds,
        others if outcome is TrialOutcome.MEASURED else tuple(math.nan for _ in others),
        tuple(_violation(bounds, _number(message, bounds.metric_name)) for bounds in objective.constraints),
        dict(message.spec.labels),
        message.status.start_time,
        is_earlier,
        _stopped_at(message),
    )


def _stopped_at(message: api_pb2.Trial) -> int | None:
    text = message.spec.labels.get(STOPPED_AT_LABEL, "")
    return int(text) if text.isdecimal() and message.status.condition == _STATUS.EARLYSTOPPED else None


def _violation(bounds: MetricConstraint, value: float) -> float:
    """Return the signed distance of a value to the nearer bound: positive beyond it, NaN if the value is NaN."""
    above = value - bounds.max if bounds.max is not None else -math.inf
    below = bounds.min - value if bounds.min is not None else -math.inf
    return value if math.isnan(value) else max(above, below)


def _number(message: api_pb2.Trial, metric: str) -> float:
    value = _reading(message, metric)
    return math.nan if value is None else value


def _reading(message: api_pb2.Trial, metric: str) -> float | None:
    """Return the measured number, NaN and infinities included; None if there is none."""
    text = next((m.value for m in message.status.observation.metrics if m.name == metric), None)
    return None if text is None else parse_value(text)


def _outcome(condition: int, value: float | None) -> tuple[TrialOutcome, float]:
    if condition in _PENDING:
        return TrialOutcome.PENDING, math.nan
    if condition in _ENDED and value is not None:
        return (TrialOutcome.MEASURED, value) if math.isfinite(value) else (TrialOutcome.BAD, math.nan)
    if condition in (_STATUS.FAILED, _STATUS.EARLYSTOPPED):
        return TrialOutcome.BAD, math.nan
    return TrialOutcome.SILENT, math.nan


def _seconds(start: str, end: str) -> float:
    try:
        return max((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds(), 0.0)
    except (ValueError, TypeError):  # absent, unreadable, or one with and one without time zone
        return math.nan


def without_settings(experiment: api_pb2.Experiment, names: Sequence[str]) -> api_pb2.Experiment:
    """Return the experiment without these settings: the same object if it has none of them."""
    settings = experiment.spec.algorithm.algorithm_settings
    if not any(setting.name in names for setting in settings):
        return experiment
    copy = api_pb2.Experiment()
    copy.CopyFrom(experiment)
    kept = [setting for setting in settings if setting.name not in names]
    del copy.spec.algorithm.algorithm_settings[:]
    copy.spec.algorithm.algorithm_settings.extend(kept)
    return copy


def reply(
    space: SearchSpace, suggestions: Sequence[Point | Proposal], explanation: str, settings: Mapping[str, str]
) -> api_pb2.GetSuggestionsReply:
    """Return the reply with these suggestions and the settings to return with the next request."""
    message = api_pb2.GetSuggestionsReply(explanation=explanation)
    for suggestion in suggestions:
        if isinstance(suggestion, Proposal):
            texts = space.drop_absent(suggestion.assignments)
            sent = message.parameter_assignments.add(trial_name=suggestion.trial_name, labels=suggestion.labels)
        else:
            texts, sent = space.format(suggestion), message.parameter_assignments.add()
        for name, text in texts.items():
            sent.assignments.add(name=name, value=text)
    for name, value in settings.items():
        message.algorithm.algorithm_settings.add(name=name, value=value)
    return message
