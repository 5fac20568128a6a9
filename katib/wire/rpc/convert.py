"""Conversion between objects of `katib.model` and messages of the wire.

Messages are those of Katib, so that its algorithm images understand them, except for invalid numbers. A reading that is
NaN, infinite, `unavailable` or not a number is left out of the observation, and a finished trial without a usable
objective value is sent as FAILED. This form causes the least harm: services that read the objective of every SUCCEEDED
trial would raise on such a text (and on the missing entry), and all of them skip FAILED trials or count them as bad
points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Protocol, runtime_checkable

from google.protobuf.message import Message

from katib.errors import FieldError, InvalidError
from katib.model.algorithms import Feature
from katib.model.conditions import current_type, find_condition, is_true
from katib.model.failure_text import has_outside_cause
from katib.model.metrics import MetricLog, format_timestamp, is_usable, parse_time
from katib.model.names import STOPPED_AT_LABEL
from katib.model.trials import metric_text, missing_objective, stopped_at
from katib.model.types import (
    AlgorithmSpec,
    CollectorKind,
    ComparisonType,
    Distribution,
    EarlyStoppingRule,
    Experiment,
    ExperimentSpec,
    NasConfig,
    ObjectiveSpec,
    ObjectiveType,
    ParameterAssignment,
    ParameterSpec,
    ParameterType,
    Trial,
    TrialAssignment,
    TrialCondition,
    format_time,
)
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated import observations_pb2 as ours

PARAMETER_TYPES: dict[str, pb.ParameterType] = {
    ParameterType.DOUBLE: pb.DOUBLE,
    ParameterType.INT: pb.INT,
    ParameterType.DISCRETE: pb.DISCRETE,
    ParameterType.CATEGORICAL: pb.CATEGORICAL,
}
DISTRIBUTIONS: dict[str, pb.Distribution] = {
    Distribution.UNIFORM: pb.UNIFORM,
    Distribution.LOG_UNIFORM: pb.LOG_UNIFORM,
    Distribution.NORMAL: pb.NORMAL,
    Distribution.LOG_NORMAL: pb.LOG_NORMAL,
}
OBJECTIVE_TYPES: dict[str, pb.ObjectiveType] = {
    ObjectiveType.MINIMIZE: pb.MINIMIZE,
    ObjectiveType.MAXIMIZE: pb.MAXIMIZE,
}
FEATURES: dict[Feature, pb.ValidateAlgorithmSettingsReply.Feature] = {
    Feature.SEVERAL_OBJECTIVES: pb.ValidateAlgorithmSettingsReply.SEVERAL_OBJECTIVES,
    Feature.CONSTRAINTS: pb.ValidateAlgorithmSettingsReply.CONSTRAINTS,
    Feature.CONDITIONAL_PARAMETERS: pb.ValidateAlgorithmSettingsReply.CONDITIONAL_PARAMETERS,
    Feature.EARLIER_TRIALS: pb.ValidateAlgorithmSettingsReply.EARLIER_TRIALS,
    Feature.PRIORS: pb.ValidateAlgorithmSettingsReply.PRIORS,
}
_CONDITIONS: dict[str, pb.TrialStatus.TrialConditionType] = {
    "": pb.TrialStatus.CREATED,
    TrialCondition.CREATED: pb.TrialStatus.CREATED,
    TrialCondition.RUNNING: pb.TrialStatus.RUNNING,
    TrialCondition.SUCCEEDED: pb.TrialStatus.SUCCEEDED,
    TrialCondition.KILLED: pb.TrialStatus.KILLED,
    TrialCondition.FAILED: pb.TrialStatus.FAILED,
    TrialCondition.EARLY_STOPPED: pb.TrialStatus.EARLYSTOPPED,
}
_COMPARISONS = {
    pb.EQUAL: ComparisonType.EQUAL,
    pb.LESS: ComparisonType.LESS,
    pb.GREATER: ComparisonType.GREATER,
}
_JUDGED_BY_OBJECTIVE = frozenset({pb.TrialStatus.SUCCEEDED, pb.TrialStatus.EARLYSTOPPED})

TRIALS_TAG = b"\x12"
"""Field 2, length-delimited: `trials` of both GetSuggestionsRequest and GetEarlyStoppingRulesRequest."""

EARLIER_TRIALS_TAG = b"\xca\x3e"
"""Field 1001, length-delimited: `earlier_trials` of GetSuggestionsRequest."""


UNMEASURED_TRIALS_TAG = b"\xd2\x3e"
"""Field 1002, length-delimited: `unmeasured_trials` of GetSuggestionsRequest."""


# --- experiment -------------------------------------------------------------------------------------------------------


def experiment_message(experiment: Experiment) -> pb.Experiment:
    """Return an experiment as services see it: name without namespace, and the fields relevant to an algorithm."""
    spec, algorithm = experiment.spec, experiment.spec.algorithm or AlgorithmSpec()
    message = pb.Experiment(
        name=experiment.name,
        spec=pb.ExperimentSpec(
            parameter_specs=pb.ExperimentSpec.ParameterSpecs(parameters=map(_parameter, spec.parameters)),
            objective=_objective(spec.objective),
            algorithm=pb.AlgorithmSpec(
                algorithm_name=algorithm.algorithm_name,
                algorithm_settings=[
                    pb.AlgorithmSetting(name=s.name, value=s.value) for s in algorithm.algorithm_settings
                ],
            ),
            parallel_trial_count=spec.parallel_trial_count or 0,
            max_trial_count=spec.max_trial_count or 0,
            parameter_constraints=spec.parameter_constraints,
            fixed_assignments=[
                pb.FixedAssignments(assignments=map(_assignment, trial.parameter_assignments))
                for trial in spec.initial_trials
            ],
        ),
    )
    if spec.early_stopping is not None:
        message.spec.early_stopping.CopyFrom(early_stopping_message(spec))
    if spec.nas_config is not None:
        message.spec.nas_config.CopyFrom(_nas_config(spec.nas_config))
    return message


def _assignment(assignment: ParameterAssignment) -> pb.ParameterAssignment:
    return pb.ParameterAssignment(name=assignment.name, value=assignment.value)


def early_stopping_message(spec: ExperimentSpec) -> pb.EarlyStoppingSpec:
    """Return the early stopping algorithm with its settings; empty if there is none."""
    algorithm = spec.early_stopping or AlgorithmSpec()
    return pb.EarlyStoppingSpec(
        algorithm_name=algorithm.algorithm_name,
        algorithm_settings=[
            pb.EarlyStoppingSetting(name=setting.name, value=setting.value) for setting in algorithm.algorithm_settings
        ],
    )


def _objective(objective: ObjectiveSpec | None) -> pb.ObjectiveSpec:
    objective = objective or ObjectiveSpec()
    additional = [name for name in objective.metric_names if name != objective.objective_metric_name]
    return pb.ObjectiveSpec(
        type=OBJECTIVE_TYPES.get(objective.type, pb.UNKNOWN),
        goal=objective.goal or 0.0,
        objective_metric_name=objective.objective_metric_name,
        additional_metric_names=additional,
        objectives=[
            pb.ObjectiveTerm(name=term.name, type=OBJECTIVE_TYPES.get(term.type, pb.UNKNOWN), goal=term.goal)
            for term in objective.objectives
        ],
        constraints=[
            pb.MetricConstraint(metric_name=bounded.metric_name, min=bounded.min, max=bounded.max)
            for bounded in objective.constraints
        ],
    )


def _parameter(parameter: ParameterSpec) -> pb.ParameterSpec:
    space, when, prior = parameter.feasible_space, parameter.when, parameter.prior
    return pb.ParameterSpec(
        name=parameter.name,
        parameter_type=PARAMETER_TYPES.get(parameter.parameter_type, pb.UNKNOWN_TYPE),
        feasible_space=pb.FeasibleSpace(
            max=space.max,
            min=space.min,
            list=space.list,
            step=space.step,
            distribution=DISTRIBUTIONS.get(space.distribution, pb.DISTRIBUTION_UNSPECIFIED),
        ),
        when=None if when is None else pb.ParameterCondition(parameter=when.parameter, values=when.values),
        prior=None
        if prior is None
        else pb.ParameterPrior(center=prior.center, factor=prior.factor, width=prior.width, weights=prior.weights),
    )


def _nas_config(config: NasConfig) -> pb.NasConfig:
    return pb.NasConfig(
        graph_config=pb.GraphConfig(
            num_layers=config.graph_config.num_layers or 0,
            input_sizes=config.graph_config.input_sizes,
            output_sizes=config.graph_config.output_sizes,
        ),
        operations=pb.NasConfig.Operations(
            operation=[
                pb.Operation(
                    operation_type=operation.operation_type,
                    parameter_specs=pb.Operation.ParameterSpecs(parameters=map(_parameter, operation.parameters)),
                )
                for operation in config.operations
            ]
        ),
    )


# --- trials -----------------------------------------------------------------------------------------------------------


def is_sent(trial: Trial) -> bool:
    """Return whether every service receives a trial, as in Katib: not if required metrics are missing at its end."""
    conditions = trial.status.conditions
    if is_true(conditions, TrialCondition.METRICS_UNAVAILABLE):
        return False
    is_unmeasured = is_true(conditions, TrialCondition.EARLY_STOPPED) or (
        is_true(conditions, TrialCondition.SUCCEEDED) and trial.spec.metrics_collector.kind == CollectorKind.NONE
    )
    return not is_unmeasured or missing_objective(trial.spec.objective, trial.status.observation) is None


def trial_message(trial: Trial) -> pb.Trial:
    """Return a trial as services see it. A failure with an outside cause is sent as killed, so no search learns it."""
    status = trial.status
    observed = _observed(trial)
    condition = _CONDITIONS.get(current_type(status.conditions), pb.TrialStatus.UNKNOWN)
    objective = trial.spec.objective or ObjectiveSpec()
    if condition in _JUDGED_BY_OBJECTIVE and all(m.name != objective.objective_metric_name for m in observed):
        condition = pb.TrialStatus.FAILED
    if condition == pb.TrialStatus.FAILED and has_outside_cause(_end(trial, TrialCondition.FAILED)):
        condition = pb.TrialStatus.KILLED
    stopped = stopped_at(_end(trial, TrialCondition.EARLY_STOPPED))
    return pb.Trial(
        name=trial.name,
        spec=pb.TrialSpec(
            objective=_objective(objective),
            parameter_assignments=pb.TrialSpec.ParameterAssignments(
                assignments=[
                    pb.ParameterAssignment(name=a.name, value=a.value) for a in trial.spec.parameter_assignments
                ]
            ),
            labels={**trial.spec.labels, STOPPED_AT_LABEL: stopped} if stopped else trial.spec.labels,
        ),
        status=pb.TrialStatus(
            start_time=format_time(status.start_time) if status.start_time else "",
            completion_time=format_time(status.completion_time) if status.completion_time else "",
            condition=condition,
            observation=pb.Observation(metrics=observed),
        ),
    )


def _end(trial: Trial, condition: str) -> str:
    """Return the message of a trial's end; empty if it has not ended this way."""
    found = find_condition(trial.status.conditions, condition)
    return "" if found is None else found.message


def unmeasured_message(trial: Trial) -> pb.Trial:
    """Return a trial without metrics, for the services that accept such trials."""
    message = trial_message(trial)
    message.status.condition = pb.TrialStatus.METRICSUNAVAILABLE
    return message


def _observed(trial: Trial) -> list[pb.Metric]:
    """Return name and value of each metric, except values that are not finite numbers.

    A metric without strategy has empty text, as in Katib, unless it is the objective, which services convert
    unconditionally.
    """
    objective, observation = trial.spec.objective or ObjectiveSpec(), trial.status.observation
    if observation is None:
        return []
    values = {m.name: metric_text(objective, observation, m.name) for m in observation.metrics}
    return [
        pb.Metric(name=name, value=value or "")
        for name, value in values.items()
        if (is_usable(value) if value else not objective.strategy_of(name) and name != objective.objective_metric_name)
    ]


@runtime_checkable
class VersionedTrials(Protocol):
    """Trials whose changes can be detected without reading them."""

    def versions(self) -> Iterator[tuple[str, str, Callable[[], Trial]]]:
        """Yield uid, revision and loader of each trial; uid and revision are empty if unknown."""


def _versions(trials: Iterable[Trial]) -> Iterator[tuple[str, str, Callable[[], Trial]]]:
    if isinstance(trials, VersionedTrials):
        return trials.versions()
    return (
        (trial.metadata.uid, trial.metadata.resource_version, partial(lambda same: same, trial)) for trial in trials
    )


class TrialEncoder:
    """Serializes the trials of one experiment, each version of each trial once.

    A protobuf message is the concatenation of its fields, so a request with a thousand past trials is the bytes of the
    experiment followed by cached bytes. Caches only the trials of the last call. Thread-safe.

    Args:
        tag: Tag of the field for the trials.
        unmeasured_tag: Tag of the field for trials without metrics; if empty, they are left out.
    """

    def __init__(self, tag: bytes = TRIALS_TAG, unmeasured_tag: bytes = b"") -> None:
        self._tag = tag
        self._unmeasured_tag = unmeasured_tag
        self._known: dict[str, tuple[str, bytes]] = {}

    def encode(self, trials: Iterable[Trial]) -> bytes:
        """Return the request fields of these trials, in this order."""
        known = self._known
        kept: dict[str, tuple[str, bytes]] = {}
        parts: list[bytes] = []
        for uid, version, load in _versions(trials):
            entry = known.get(uid)
            if entry is None or entry[0] != version or not version:
                entry = (version, self._encoded(load()))
            kept[uid] = entry
            parts.append(entry[1])
        self._known = kept  # replaced as a whole: a concurrent call loses cache entries at worst
        return b"".join(parts)

    def _encoded(self, trial: Trial) -> bytes:
        if is_sent(trial):
            return _field(self._tag, trial_message(trial))
        return _field(self._unmeasured_tag, unmeasured_message(trial)) if self._unmeasured_tag else b""


def _field(tag: bytes, message: Message) -> bytes:
    data = message.SerializeToString()
    return tag + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits per byte is what a varint is
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


# --- replies ----------------------------------------------------------------------------------------------------------


def assignments_of(reply: pb.GetSuggestionsReply) -> tuple[TrialAssignment, ...]:
    """Return a service's assignments; without rules, and without names if the controller chooses them."""
    found: list[TrialAssignment] = []
    for suggested in reply.parameter_assignments:
        values = tuple([ParameterAssignment(name=one.name, value=one.value) for one in suggested.assignments])
        labels = dict(suggested.labels)
        found.append(TrialAssignment(name=suggested.trial_name, parameter_assignments=values, labels=labels))
    return tuple(found)


def rules_of(messages: Iterable[pb.EarlyStoppingRule]) -> tuple[EarlyStoppingRule, ...]:
    """Return early stopping rules as objects; an unknown comparison means `equal`."""
    return tuple(
        EarlyStoppingRule(
            name=m.name,
            value=m.value,
            comparison=_COMPARISONS.get(m.comparison, ComparisonType.EQUAL),
            start_step=m.start_step,
        )
        for m in messages
    )


def message_of(log: MetricLog) -> pb.MetricLog:
    """Return Katib's message of a reading, which has no step."""
    return pb.MetricLog(time_stamp=format_timestamp(log.time), metric=pb.Metric(name=log.name, value=log.value))


def reading_of(time_stamp: str, metric: pb.Metric | ours.Reading) -> MetricLog:
    """Return the reading of a message.

    Raises:
        InvalidError: Its time stamp is unreadable.
    """
    time = parse_time(time_stamp)
    if time is None:
        raise InvalidError([time_error("time_stamp", time_stamp)])
    step = metric.step if isinstance(metric, ours.Reading) and metric.HasField("step") else None
    return MetricLog(time, metric.name, metric.value, step)


def our_message_of(log: MetricLog) -> ours.Reading:
    """Return the message of a reading with its step."""
    return ours.Reading(time_stamp=format_timestamp(log.time), name=log.name, value=log.value, step=log.step)


def time_error(path: str, text: str) -> FieldError:
    """Return the error for an unreadable time stamp."""
    cause = f"{text!r} is not an RFC 3339 time stamp"
    return FieldError(path, cause, "write it as 2024-03-04T17:55:08Z", "time-format")
