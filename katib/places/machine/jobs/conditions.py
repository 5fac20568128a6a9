"""The end of a job and the conditions in its status, as far as they are the same for every kind. Pure.

The plans of a Job, of a training job and of a JobSet share it. They differ in the rules of success and failure, in
which pods are tried again, and in the words of their status.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from katib.engine.runtime.objects import Object
from katib.model.failure_text import with_last_output
from katib.model.types import format_time
from katib.places.machine.jobs.kind import ObservedJob, Plan
from katib.places.machine.pods.records import PodPhase, PodRecord

Conditions = tuple[dict[str, Any], ...]


class JobCondition(StrEnum):
    """Condition types of a Job; the first two mark the way to the second two. `Retrying` is ours."""

    SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
    FAILURE_TARGET = "FailureTarget"
    COMPLETE = "Complete"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    RETRYING = "Retrying"


class Reason(StrEnum):
    """Why a Job ended or is tried again. `EarlyStopped`, `PodCannotStart`, `PodEvicted` and `PodFailed` are ours."""

    COMPLETIONS_REACHED = "CompletionsReached"
    SUCCESS_POLICY = "SuccessPolicy"
    EARLY_STOPPED = "EarlyStopped"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    POD_FAILURE_POLICY = "PodFailurePolicy"
    FAILED_INDEXES = "FailedIndexes"
    MAX_FAILED_INDEXES_EXCEEDED = "MaxFailedIndexesExceeded"
    POD_CANNOT_START = "PodCannotStart"
    POD_EVICTED = "PodEvicted"
    POD_FAILED = "PodFailed"


def conditions_of(status: Object) -> Conditions:
    return tuple(status.get("conditions") or ())


def true_condition(conditions: Conditions, type_: str) -> dict[str, Any] | None:
    for condition in conditions:
        if condition["type"] == type_ and condition["status"] == "True":
            return condition
    return None


ENDS = (JobCondition.COMPLETE, "Completed", "Succeeded", JobCondition.FAILED)
"""Types of the condition that says a job is over: that of Job and TrainJob, of JobSet, of the others, and of all."""


OWN_TYPES = frozenset(
    {
        *JobCondition,
        *("Created", "Running", "Restarting", "Succeeded", "Completed"),
        *("StartupPolicyInProgress", "StartupPolicyCompleted"),
    }
)
"""Types of the conditions that plans set and remove."""


def with_foreign(conditions: Conditions, before: Conditions, after: Conditions) -> Conditions:
    """Return conditions with those that others set, changed or removed in the stored status."""
    changed = {c["type"]: c for c in after if c not in before and c["type"] not in OWN_TYPES}
    gone = {c["type"] for c in before} - {c["type"] for c in after} - OWN_TYPES
    return (*(c for c in conditions if c["type"] not in {*changed, *gone}), *changed.values())


def end_of(status: Object) -> dict[str, Any] | None:
    """Return the condition that says the job is over, None while it is not."""
    conditions = status.get("conditions") or ()
    for type_ in ENDS if conditions else ():
        for condition in conditions:
            if condition["type"] == type_ and condition["status"] == "True":
                found: dict[str, Any] = condition
                return found
    return None


def with_condition(
    conditions: Conditions, type_: str, *, holds: bool = True, reason: str, message: str, now: datetime
) -> Conditions:
    """Return the list with the condition set, the very same list if it is already set."""
    status, others = str(holds), []
    for old in conditions:
        if old["type"] != type_:
            others.append(old)
        elif old["status"] == status and old["reason"] == reason:
            return conditions
    moment = format_time(now)
    new = {
        "type": str(type_),
        "status": status,
        "reason": str(reason),
        "message": message,
        "lastProbeTime": moment,
        "lastTransitionTime": moment,
    }
    return (*others, new)


def with_suspension(
    conditions: Conditions, subject: str, reasons: tuple[str, str], now: datetime, *, suspended: bool
) -> Conditions:
    """Return the list with the condition Suspended, which stays and does not hold once the job is resumed.

    Args:
        conditions: The list.
        subject: Begins the messages, as `jobset is`.
        reasons: Of a job that is suspended, and of one that is resumed.
        now: The time.
    """
    type_ = JobCondition.SUSPENDED
    if not suspended and true_condition(conditions, type_) is None:
        return conditions
    reason, state = (reasons[0], "suspended") if suspended else (reasons[1], "resumed")
    return with_condition(conditions, type_, holds=suspended, reason=reason, message=f"{subject} {state}", now=now)


def without_probes(conditions: Conditions) -> list[dict[str, Any]]:
    """Return conditions for a status without the field that only a Job's have."""
    return [{name: value for name, value in c.items() if name != "lastProbeTime"} for c in conditions]


def with_message(conditions: Conditions, type_: str, *, reason: str, message: str, now: datetime) -> Conditions:
    """Return the list with a condition whose message counts: another message is a change too."""
    if any(c["type"] == type_ and c["message"] == message for c in conditions):
        return conditions
    others = tuple(c for c in conditions if c["type"] != type_)
    return with_condition(others, type_, reason=reason, message=message, now=now)


def parse_time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


_Time = TypeVar("_Time", float, datetime)

DOUBT: Final = timedelta(seconds=1)
"""How long a failure is held back while another pod of a gang runs: that one may be about to end without its port."""

FORGIVEN_LOSSES: Final = 6
"""How many pods a job may lose, or a gang how often; more, and its own program may be what ends the guard."""


class JobOutcome(NamedTuple):
    """How a job ends.

    Attributes:
        until: Until when pods may continue by themselves, in steady time; None: no longer.
    """

    success: bool
    reason: str
    message: str
    until: datetime | None = None

    def leaves_time(self, now: datetime) -> bool:
        """Return whether pods may continue at this moment, in steady time."""
        return self.until is not None and now < self.until


class _Ending(Protocol):
    """The fields of a spec about the managing controller and about removal."""

    @property
    def managed_elsewhere(self) -> bool: ...

    @property
    def ttl_seconds_after_finished(self) -> int | None: ...


def settled(observed: ObservedJob, spec: _Ending) -> Plan | None:
    """Return the plan of a job that another controller manages, or that is over; None for all others.

    One that is over is removed once it has outlived its time.
    """
    status, ttl = dict(observed.job.get("status") or {}), spec.ttl_seconds_after_finished
    end = end_of(status)
    if not spec.managed_elsewhere and end is None:
        return None
    if spec.managed_elsewhere or end is None or ttl is None:
        return Plan(status)
    moment = observed.moment
    left = parse_time(end["lastTransitionTime"]) + timedelta(seconds=ttl) - moment.wall
    return Plan(status, wake_at=moment.steady + left) if left > timedelta(0) else Plan(status, delete=True)


def going(pods: Iterable[PodRecord]) -> tuple[PodRecord, ...]:
    """Return the pods that wait or run and may continue."""
    return tuple(p for p in pods if not p.is_finished and not p.stopping)


def without_port(pods: Iterable[PodRecord]) -> PodRecord | None:
    """Return a pod of a gang that failed because another program listens on its port; None when there is none."""
    return next((p for p in pods if p.address_in_use and (p.failures or p.phase is PodPhase.FAILED)), None)


def may_yet_fail(pods: Iterable[PodRecord]) -> bool:
    """Return whether a running pod may be about to end because its port is taken."""
    return any(not p.failures for p in going(pods))


def early_outcome(pods: Iterable[PodRecord]) -> JobOutcome | None:
    """Return the end that no further pod could change: the trial was stopped early, or a pod can never run here."""
    pods = tuple(pods)
    for pod in pods:
        if pod.verdict:
            return JobOutcome(success=True, reason=Reason.EARLY_STOPPED, message=pod.verdict)
    for pod in pods:
        if pod.cannot_start:
            return JobOutcome(success=False, reason=Reason.POD_CANNOT_START, message=pod.cannot_start)
        if pod.evicted:
            return JobOutcome(success=False, reason=Reason.POD_EVICTED, message=pod.evicted)
    return None


def earliest(*moments: _Time | None) -> _Time | None:
    """Return the first of some moments, of which each may be missing."""
    first: _Time | None = None
    for moment in moments:
        if moment is not None and (first is None or moment < first):
            first = moment
    return first


def deadline_of(seconds: int | None, started_at: datetime | None) -> datetime | None:
    """Return when a job that started then was active for too long; None for never."""
    return None if seconds is None or started_at is None else started_at + timedelta(seconds=seconds)


def overdue(
    seconds: int | None, started_at: datetime | None, now: datetime, reason: str = Reason.DEADLINE_EXCEEDED
) -> JobOutcome | None:
    """Return the failure of a job whose deadline has passed; None while it has not."""
    deadline = deadline_of(seconds, started_at)
    if deadline is None or now < deadline:
        return None
    return failure(reason, f"the job was active for longer than its deadline of {seconds} s")


def failure(reason: str, message: str, pod: PodRecord | None = None) -> JobOutcome:
    """Return the failure of a job; of the pod that explains it, the last line closes the message."""
    last_output = pod.last_output if pod is not None else ""
    return JobOutcome(success=False, reason=reason, message=with_last_output(message, last_output))


def success(reason: str, message: str, pods: Iterable[PodRecord], until: datetime | None = None) -> JobOutcome:
    """Return the success of a job, with the remarks of its pods, such as a log that was cut short by a full disk."""
    for pod in pods:
        message += f"; {pod.message}" if pod.message else ""
    return JobOutcome(success=True, reason=reason, message=message, until=until)
