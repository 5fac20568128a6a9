"""The status of a training job, as the training operator writes it. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from katib.model.types import format_time
from katib.places.machine.jobs.conditions import Conditions, Reason, conditions_of
from katib.places.machine.jobs.gang.plan import GangPlanner
from katib.places.machine.jobs.replicated.spec import TrainingSpec
from katib.places.machine.jobs.replicated.training_kind import OF_A_ROLE, TrainingKind
from katib.places.machine.pods.records import PodPhase


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


class TrainingStatus:
    """Makes the status of a training job."""

    def __init__(self, kind: TrainingKind, name: str, spec: TrainingSpec, progress: GangPlanner) -> None:
        self._kind = kind
        self._name = name
        self._spec = spec
        self._progress = progress
        self._now = format_time(progress.moment.wall)
        self._title = f"{kind.kind.kind} {name}"

    def status(self) -> dict[str, Any]:
        progress = self._progress
        fields = {
            "conditions": [dict(c) for c in self._conditions()],
            "replicaStatuses": self._replica_statuses(),
            "startTime": _text(progress.started_at),
            "completionTime": self._now if progress.is_over else None,
        }
        status = {field: value for field, value in fields.items() if value}
        before = dict(progress.status)
        reconciled = before.pop("lastReconcileTime", None)
        if reconciled is None or before != status:
            reconciled = self._now
        return {**status, "lastReconcileTime": reconciled}

    # --- conditions ---------------------------------------------------------------------------------------------------

    def _conditions(self) -> Conditions:
        progress, of = self._progress, TrainingCondition
        conditions = conditions_of(progress.status) or self._with((), of.CREATED, f"{self._title} is created.")
        if (outcome := progress.state.outcome) is not None:
            if not progress.is_over:
                return conditions
            type_, message = (of.SUCCEEDED if outcome.success else of.FAILED), outcome.message
            cut = [f"{p.role}-{p.index}" for p in progress.newest.values() if p.stopping and not p.verdict]
            message += f"; stopped then: {', '.join(cut)}" if outcome.success and cut else ""
            return self._with(conditions, type_, message, outcome.reason)
        if progress.gang.suspend:
            return self._with(conditions, of.SUSPENDED, f"{self._title} is suspended.")
        if any(c["type"] == of.SUSPENDED for c in conditions):
            message = f"{self._title} is resumed."
            conditions = self._with(conditions, of.SUSPENDED, message, self._reason("Resumed"), holds=False)
        if progress.renewal:
            for type_ in (of.RESTARTING, of.RETRYING):
                conditions = self._with(conditions, type_, progress.renewal)
            return conditions
        primary = self._kind.primary(self._spec)
        pods = [p for place, p in progress.newest.items() if not primary or place in primary]
        if any(p.phase is PodPhase.RUNNING and not p.stopping for p in pods):
            conditions = self._with(conditions, of.RUNNING, f"{self._title} is running.")
        if progress.retrying:
            reason = self._reason(of.RETRYING) if progress.retrying == progress.state.failure else Reason.POD_FAILED
            conditions = self._with(conditions, of.RETRYING, progress.retrying, reason)
        if again := ", ".join(f"{p.role}-{p.index}" for p in progress.again):
            message = f"{self._title} is restarting because {again} failed."
            conditions = self._with(conditions, of.RESTARTING, message)
        return conditions

    def _with(
        self, conditions: Conditions, type_: TrainingCondition, message: str, reason: str = "", *, holds: bool = True
    ) -> Conditions:
        """Return the list with a condition set, the very same list if nothing changes.

        Without a reason it is that of its type. Only of Retrying another message is a change: the others mean the same
        as long as they have the same reason.
        """
        reason = reason or self._reason(type_)
        now = {"lastUpdateTime": self._now, "lastTransitionTime": self._now}
        new = {"type": str(type_), "status": str(holds), "reason": reason, "message": message, **now}
        compared = ("status", "reason", *(("message",) if type_ is TrainingCondition.RETRYING else ()))
        old = next((c for c in conditions if c["type"] == type_), None)
        if old is not None and all(old[field] == new[field] for field in compared):
            return conditions
        if old is not None and old["status"] == new["status"]:
            new["lastTransitionTime"] = old["lastTransitionTime"]
        removed = {type_, *(_REMOVED_BY.get(type_, ()) if holds else ())}
        others = [c for c in conditions if c["type"] not in removed]
        if holds and type_ in _ENDED_BY:
            running = {"type": TrainingCondition.RUNNING, "status": "True"}
            over = {"status": "False", "reason": reason, **now}
            others = [{**c, **over} if running.items() <= c.items() else c for c in others]
        return (*others, new)

    def _reason(self, type_: str) -> str:
        return f"{self._kind.kind.kind}{type_}"

    # --- replicas -----------------------------------------------------------------------------------------------------

    def _replica_statuses(self) -> dict[str, Any]:
        """Return how many replicas of each type run, succeeded and failed; counts of zero are left out.

        Replicas that the job stopped have not failed; when it has succeeded, they count as succeeded too. Idle ones
        count as active.
        """
        progress, found = self._progress, {}
        idle = frozenset[str]()
        if not progress.is_over and (progress.state.outcome is not None or not progress.gang.suspend):
            idle = self._kind.idle(self._spec)
        succeeded = progress.is_over and progress.state.outcome is not None and progress.state.outcome.success
        for role, spec in self._spec.roles.items():
            pods = [pod for (r, _), pod in progress.newest.items() if r == role]
            active = sum(p.phase is PodPhase.RUNNING and not p.stopping for p in pods) + (role in idle) * spec.count
            failed = sum(p.phase is PodPhase.FAILED and not p.stopping and not succeeded for p in pods)
            done = sum(p.phase is PodPhase.SUCCEEDED or (succeeded and p.phase is PodPhase.FAILED) for p in pods)
            if succeeded:
                active, done = 0, done + active
            counts = {"active": active, "failed": failed, "succeeded": done}
            labels = self._kind.labels(self._name, role, 0, is_primary=False)
            found[spec.type] = {
                **{name: count for name, count in counts.items() if count},
                "selector": ",".join(f"{name}={labels[name]}" for name in OF_A_ROLE),
            }
        return found


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else format_time(moment)
