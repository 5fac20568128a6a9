"""Messages of trials, as services see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal, Protocol, runtime_checkable

from katib.model.conditions import current_type, find_condition, is_true
from katib.model.failure_text import has_outside_cause
from katib.model.metrics import is_usable
from katib.model.names import STOPPED_AT_LABEL
from katib.model.trials import metric_text, missing_objective, stopped_at
from katib.model.types import CollectorKind, ObjectiveSpec, Trial, TrialCondition, format_time
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.convert import objective_message

_CONDITIONS: dict[str, pb.TrialStatus.TrialConditionType] = {
    "": pb.TrialStatus.CREATED,
    TrialCondition.CREATED: pb.TrialStatus.CREATED,
    TrialCondition.RUNNING: pb.TrialStatus.RUNNING,
    TrialCondition.SUCCEEDED: pb.TrialStatus.SUCCEEDED,
    TrialCondition.KILLED: pb.TrialStatus.KILLED,
    TrialCondition.FAILED: pb.TrialStatus.FAILED,
    TrialCondition.EARLY_STOPPED: pb.TrialStatus.EARLYSTOPPED,
}


_JUDGED_BY_OBJECTIVE = frozenset({pb.TrialStatus.SUCCEEDED, pb.TrialStatus.EARLYSTOPPED})


_Field = Literal["trials", "earlier_trials", "unmeasured_trials"]


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
            objective=objective_message(objective),
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
        name: The field for the trials. `trials` has one number in all requests.
        unmeasured: Whether trials without metrics are sent, in a field of their own.
    """

    def __init__(self, name: _Field = "trials", *, unmeasured: bool = False) -> None:
        self._name = name
        self._unmeasured = unmeasured
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
            return _request(self._name, trial_message(trial))
        return _request("unmeasured_trials", unmeasured_message(trial)) if self._unmeasured else b""


def _request(name: _Field, trial: pb.Trial) -> bytes:
    """Return the part of a request with one trial."""
    request = pb.GetSuggestionsRequest()
    getattr(request, name).append(trial)
    return request.SerializeToString()
