"""Conditions in the status of a job of any kind. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from katib.api.types import format_time
from katib.runtime.objects import Object

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
    """Return the conditions in a status."""
    return tuple(status.get("conditions") or ())


def true_condition(conditions: Conditions, type_: str) -> dict[str, Any] | None:
    """Return the condition of that type if it holds."""
    for condition in conditions:
        if condition["type"] == type_ and condition["status"] == "True":
            return condition
    return None


ENDS = (JobCondition.COMPLETE, "Completed", "Succeeded", JobCondition.FAILED)
"""Types of the condition that says a job is over: that of Job and TrainJob, of JobSet, of the others, and of all."""


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
    """Return the list with the condition set, the very same list when it already says so."""
    status = str(holds)
    for old in conditions:
        if old["type"] == type_ and old["status"] == status and old["reason"] == reason:
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
    return (*[c for c in conditions if c["type"] != type_], new)


def with_suspension(
    conditions: Conditions, what: str, reasons: tuple[str, str], now: datetime, *, suspended: bool
) -> Conditions:
    """Return the list with the condition Suspended, which stays and does not hold once the job is resumed.

    Args:
        conditions: The list.
        what: Begins the messages, as `jobset is`.
        reasons: Of a job that is suspended, and of one that is resumed.
        now: The time.
        suspended: Whether the job is suspended now.
    """
    type_ = JobCondition.SUSPENDED
    if not suspended and true_condition(conditions, type_) is None:
        return conditions
    reason, state = (reasons[0], "suspended") if suspended else (reasons[1], "resumed")
    return with_condition(conditions, type_, holds=suspended, reason=reason, message=f"{what} {state}", now=now)


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
    """Read a time as objects hold it."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
