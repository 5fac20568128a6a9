"""The status of a training job, as its operator writes it. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from katib.api.types import format_time
from katib.local.jobs.conditions import Conditions
from katib.local.jobs.replicated.replicas import Replicas
from katib.local.jobs.replicated.training_kind import role_labels
from katib.local.pods.records import Phase


class TrainingCondition(StrEnum):
    """Condition types of a training job. `Retrying` is ours: how a try failed, while the next one is made."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    RETRYING = "Retrying"


_REMOVED_BY = {
    TrainingCondition.RUNNING: (TrainingCondition.RESTARTING,),
    TrainingCondition.RESTARTING: (TrainingCondition.RUNNING,),
    TrainingCondition.SUCCEEDED: (TrainingCondition.RETRYING, TrainingCondition.RESTARTING),
    TrainingCondition.FAILED: (TrainingCondition.RETRYING,),
}
"""Conditions that are not kept when one begins to hold."""

_ENDED_BY = frozenset({TrainingCondition.SUCCEEDED, TrainingCondition.FAILED, TrainingCondition.SUSPENDED})
"""Conditions with which Running stays in the list and no longer holds."""


def with_condition(
    conditions: Conditions, type_: TrainingCondition, *, reason: str, message: str, now: datetime, holds: bool = True
) -> Conditions:
    """Return the list with the condition set, the very same list when it already says so.

    Only of Retrying another message is a change: the others say the same as long as they have the same reason.
    """
    moment = format_time(now)
    new = {
        "type": str(type_),
        "status": str(holds),
        "reason": reason,
        "message": message,
        "lastUpdateTime": moment,
        "lastTransitionTime": moment,
    }
    compared = ("status", "reason", *(("message",) if type_ is TrainingCondition.RETRYING else ()))
    old = next((c for c in conditions if c["type"] == type_), None)
    if old is not None and all(old[field] == new[field] for field in compared):
        return conditions
    if old is not None and old["status"] == new["status"]:
        new["lastTransitionTime"] = old["lastTransitionTime"]
    removed = {type_, *(_REMOVED_BY.get(type_, ()) if holds else ())}
    others = tuple(c for c in conditions if c["type"] not in removed)
    if holds and type_ in _ENDED_BY:
        others = tuple(_ended(c, reason, moment) if c["type"] == TrainingCondition.RUNNING else c for c in others)
    return (*others, new)


def _ended(condition: dict[str, Any], reason: str, moment: str) -> dict[str, Any]:
    changed = {"status": "False", "reason": reason, "lastUpdateTime": moment, "lastTransitionTime": moment}
    return condition if condition["status"] == "False" else {**condition, **changed}


def replica_statuses(kind: str, job: str, replicas: Replicas, *, idle: frozenset[str], succeeded: bool) -> Any:
    """Return how many replicas of each type run, succeeded and failed; counts of zero are left out.

    Replicas that the job stopped have not failed.

    Args:
        kind: Name of the kind.
        job: Name of the job.
        replicas: Its pods.
        idle: Roles whose replicas have nothing to run; they count as active.
        succeeded: Whether the job has succeeded: then replicas that were stopped count as succeeded too.
    """
    found = {}
    for role, spec in replicas.spec.roles.items():
        pods = [pod for (r, _), pod in replicas.newest.items() if r == role]
        active = sum(p.phase is Phase.RUNNING and not p.stopping for p in pods) + (role in idle) * spec.count
        failed = sum(p.phase is Phase.FAILED and not p.stopping and not succeeded for p in pods)
        done = sum(p.phase is Phase.SUCCEEDED or (succeeded and p.phase is Phase.FAILED) for p in pods)
        if succeeded:
            active, done = 0, done + active
        counts = {"active": active, "failed": failed, "succeeded": done}
        found[spec.type] = {
            **{name: count for name, count in counts.items() if count},
            "selector": ",".join(f"{name}={value}" for name, value in sorted(role_labels(kind, job, role).items())),
        }
    return found
