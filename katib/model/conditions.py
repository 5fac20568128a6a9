"""Conditions: the recorded state of an object.

Theory of operation: a condition is a fact with a status. Setting one that already holds with the same reason changes
nothing. Setting any other one moves it to the end of the list, so the last element is the latest change, and its type
is "the state" in printer columns, the UI and the gRPC trial status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from msgspec import structs

from katib.model import types
from katib.model.types import ConditionStatus, ExperimentCondition, TrialCondition

if TYPE_CHECKING:
    from katib.model.types import Condition, ExperimentStatus, SuggestionStatus, TrialStatus

Conditions: TypeAlias = "tuple[Condition, ...]"
Status = TypeVar("Status", bound="ExperimentStatus | SuggestionStatus | TrialStatus")

COMPLETED_EXPERIMENT = frozenset({ExperimentCondition.SUCCEEDED, ExperimentCondition.FAILED})
COMPLETED_TRIAL = frozenset(
    {
        TrialCondition.SUCCEEDED,
        TrialCondition.FAILED,
        TrialCondition.KILLED,
        TrialCondition.EARLY_STOPPED,
        TrialCondition.METRICS_UNAVAILABLE,
    }
)


whole_second: Callable[[datetime], datetime] = methodcaller("replace", microsecond=0)
"""Returns a time without fractions of a second, as objects store it."""


def find_condition(conditions: Iterable[Condition], type_: str) -> Condition | None:
    for condition in conditions:
        if condition.type == type_:
            return condition
    return None


def is_true(conditions: Iterable[Condition], type_: str, reason: str = "") -> bool:
    """Return whether a condition of that type holds, for that reason if one is given."""
    for condition in conditions:
        if condition.type == type_:
            return condition.status == "True" and reason in ("", condition.reason)
    return False


def true_types(conditions: Iterable[Condition]) -> frozenset[str]:
    return frozenset([condition.type for condition in conditions if condition.status == "True"])


def has_ended(conditions: Iterable[Condition]) -> bool:
    for condition in conditions:  # noqa: SIM110 - called several times a trial, and a generator costs more calls
        if condition.type in COMPLETED_EXPERIMENT and condition.status == "True":
            return True
    return False


def current_type(conditions: Conditions) -> str:
    """Return "the state": the type of the condition that changed last; empty if there is none."""
    return conditions[-1].type if conditions else ""


def set_condition(
    conditions: Conditions,
    type_: str,
    reason: str,
    message: str,
    now: datetime,
    *,
    holds: bool = True,
    restates: bool = False,
) -> Conditions:
    """Return the list with the condition set, the very same list if nothing changed.

    If `restates`, another message makes it another condition, which holds since now.
    """
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    old = find_condition(conditions, type_)
    if restates and old is not None and old.message != message:
        conditions, old = without_condition(conditions, type_), None
    if old is not None and old.status == status and old.reason == reason:
        return conditions
    now = whole_second(now)
    changes: dict[str, Any] = {"status": status, "reason": reason, "message": message, "last_update_time": now}
    since = old.last_transition_time if old is not None and old.status == status else now
    if old is None:
        return (*conditions, types.Condition(type=type_, last_transition_time=since, **changes))
    return (*without_condition(conditions, type_), structs.replace(old, last_transition_time=since, **changes))


def with_start(status: Status, kind: str, now: datetime) -> Status:
    """Return a status with the condition Created, the very same if it has it already.

    Args:
        now: Time at which it was first seen.
    """
    if find_condition(status.conditions, "Created") is not None:
        return status
    conditions = set_condition(status.conditions, "Created", f"{kind}Created", f"{kind} is created", now)
    return structs.replace(status, conditions=conditions, start_time=whole_second(now))


def without_condition(conditions: Conditions, *types: str) -> Conditions:
    """Return the list without conditions of these types."""
    return tuple([condition for condition in conditions if condition.type not in types])
