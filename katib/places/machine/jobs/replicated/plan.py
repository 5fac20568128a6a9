"""What to do about a training job now. Pure: job, pods and time in; pods to start and stop and the true status out.

The order is that of the training operator: finished, suspended, back-off limit, deadline, success, failures, pods to
create. Where the operator leaves a tie to chance, the success of the primary replica comes before failures. Two
outcomes are ours and come first, because nothing could change them: the trial was stopped early (Succeeded,
`EarlyStopped`), and a pod that can never start on this machine (Failed, `PodCannotStart`).

An outcome is kept in memory until the last process has ended, so that all metrics are stored when the job is judged.
After a success the other replicas have a moment to end by themselves; those that do not are stopped, and that is no
failure: on a cluster they would stay until the job is deleted.

All replicas begin again, with new ports and no failure counted, when one finds its port taken by another program, or
when the guard of this machine's processes took them with it. A try is what happens between such beginnings; what it
reported is removed before the next one.

A replica often fails because another one could not listen, and may be seen to end first. So its failure becomes final
only after a moment in which those that listen can say so by their own end.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

from katib.model.failure_text import failure_cause, with_last_output
from katib.model.types import format_time
from katib.places.machine.jobs.conditions import (
    FORGIVEN_LOSSES,
    Conditions,
    Outcome,
    Reason,
    conditions_of,
    deadline_of,
    early_outcome,
    failure,
    going,
    held_until,
    may_yet_fail,
    overdue,
    settled,
    success,
    without_port,
)
from katib.places.machine.jobs.kind import Observed, Plan, PodStart
from katib.places.machine.jobs.replicated.spec import UNLIMITED_FAILURES, Replicas, TrainingSpec
from katib.places.machine.jobs.replicated.training_kind import OF_A_ROLE, TrainingKind, spec_of
from katib.places.machine.pods.records import UNCOUNTED, Phase, PodRecord

RENEWALS: Final = 2
"""How often a job gets new ports. Ports that are taken again and again are no accident."""

TOO_MANY_RESTARTS: Final = "TooManyRestarts"
"""The end of that reason."""


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


class _Memory(NamedTuple):
    """What one plan leaves to the next.

    Attributes:
        first: Number of the pods that belong to earlier tries.
        renewals: How often all replicas got new ports.
        losses: How often all replicas began again because some were lost.
        needs_addresses: The next replicas to start get new ports.
        outcome: How the job ends, once that is known.
        doubted: How it ends unless the failure turns out to be that of a port, and until when that may happen.
    """

    first: int = 0
    renewals: int = 0
    losses: int = 0
    needs_addresses: bool = False
    outcome: Outcome | None = None
    doubted: Outcome | None = None


def plan(kind: TrainingKind, observed: Observed) -> Plan:
    """Decide about a training job.

    Args:
        kind: Its kind.
        observed: The job as it is.
    """
    spec = spec_of(observed.job, kind)
    if done := settled(observed, spec):
        return done
    return _Planning(kind, observed, spec).plan()


class _Planning:
    """One decision about a job that is not over."""

    def __init__(self, kind: TrainingKind, observed: Observed, spec: TrainingSpec) -> None:
        self.kind = kind
        self.observed = observed
        self.spec = spec
        self.memory = _Memory(**observed.memory)
        self.replicas = Replicas(spec, observed.pods[self.memory.first :], kind.container)
        self._going = going(observed.pods)  # all pods that were not asked to end
        self._name = str(observed.job["metadata"]["name"])
        self._title = f"{kind.kind.kind} {self._name}"
        self._wall, self._steady = observed.moment
        self._started_at = observed.started_at or self._steady
        self._deadline = deadline_of(spec.active_deadline_seconds, self._started_at)

    def plan(self) -> Plan:
        outcome = self.memory.outcome or early_outcome(self.replicas.pods)
        if outcome is None and self.spec.suspend:
            return self._suspend()
        if outcome is None and (renewal := self._renewal()):
            return renewal
        outcome = outcome or self.memory.doubted or self._decide()
        if outcome is None:
            return self._go_on()
        return self._hold_back(outcome) if self._is_in_doubt(outcome) else self._finish(outcome)

    # --- the ways a job can stand -------------------------------------------------------------------------------------

    def _finish(self, outcome: Outcome) -> Plan:
        now = self.observed.moment
        is_over = all(p.is_finished for p in self.observed.pods)
        late = outcome.success and outcome.leaves_time(now.steady)
        may_end = {p.name for p in self._going if late and p.role not in self.kind.endless and not p.failures}
        conditions = self._conditions
        if is_over:
            type_ = TrainingCondition.SUCCEEDED if outcome.success else TrainingCondition.FAILED
            cut = [f"{p.role}-{p.index}" for p in self.replicas.newest.values() if p.stopping and not p.verdict]
            message = outcome.message + (f"; stopped then: {', '.join(cut)}" if outcome.success and cut else "")
            conditions = self._with(conditions, type_, message, outcome.reason)
        return Plan(
            self._status(conditions, ended=is_over, success=outcome.success),
            stop=tuple(p.name for p in self._going if p.name not in may_end),
            started_at=self.observed.started_at,
            wake_at=outcome.until if late and not is_over else None,
            memory=self.memory._replace(outcome=outcome)._asdict(),
        )

    def _suspend(self) -> Plan:
        conditions = self._with(self._conditions, TrainingCondition.SUSPENDED, f"{self._title} is suspended.")
        return Plan(
            self._status(conditions, replicas=self._no_replicas(), suspended=True),
            stop=tuple(p.name for p in self._going),
            waiting="its job is suspended",
            memory=_Memory(first=len(self.observed.pods), needs_addresses=bool(self.observed.pods))._asdict(),
        )

    def _renewal(self) -> Plan | None:
        """Begin again with all replicas where that may help."""
        memory, next_first = self.memory, len(self.observed.pods)
        if (pod := self.replicas.lost) and (memory.losses < FORGIVEN_LOSSES or pod.reason in UNCOUNTED):
            memory = memory._replace(losses=memory.losses + (pod.reason not in UNCOUNTED))
            cause = f"{pod.message}, with what had started it; all replicas start again"
        elif (pod := without_port(self.replicas.newest.values())) and memory.renewals < RENEWALS:
            memory = memory._replace(renewals=memory.renewals + 1)
            cause = f"{failure_cause(_explained(pod))}; all replicas start again with new ports"
        else:
            return None
        memory = memory._replace(first=next_first, needs_addresses=True, doubted=None)
        conditions = self._started_conditions()
        for type_ in (TrainingCondition.RESTARTING, TrainingCondition.RETRYING):
            conditions = self._with(conditions, type_, cause)
        return Plan(
            self._status(conditions, replicas=self._no_replicas()),
            stop=tuple(p.name for p in self._going),
            started_at=self._started_at,
            wake_at=self._deadline if self.replicas.unfinished else self._steady,
            waiting=cause,
            memory=memory._asdict(),
        )

    def _is_in_doubt(self, outcome: Outcome) -> bool:
        """Return whether a failure may turn out to be that of a port: a replica that listens has yet to end."""
        if outcome.success or not outcome.leaves_time(self._steady) or self.memory.renewals >= RENEWALS:
            return False
        listening = (self.replicas.newest.get(place) for place in self.kind.listeners(self.spec))
        return may_yet_fail(pod for pod in listening if pod is not None)

    def _hold_back(self, doubted: Outcome) -> Plan:
        """Let everything go on for a moment, but start nothing."""
        return Plan(
            self._status(self._going_conditions([])),
            started_at=self._started_at,
            wake_at=doubted.until,
            waiting=doubted.message,
            memory=self.memory._replace(doubted=doubted)._asdict(),
        )

    def _go_on(self) -> Plan:
        before = self.observed.pods[: self.memory.first]
        is_free = all(p.is_finished for p in before)
        idle = self.kind.idle(self.spec)
        missing = [place for place in self.replicas.missing() if place[0] not in idle] if is_free else []
        surplus = [p for p in self.replicas.active if (p.role, p.index) not in self.spec.wanted]
        renewed = self.memory.needs_addresses and bool(missing)
        return Plan(
            self._status(self._going_conditions(missing)),
            start=tuple(PodStart(index, role, after=self.kind.waits_for(self.spec, role)) for role, index in missing),
            stop=tuple(p.name for p in surplus),
            started_at=self._started_at,
            wake_at=self._deadline,
            waiting=next((p.waiting for p in self.replicas.active if p.waiting), ""),
            memory=self.memory._replace(needs_addresses=self.memory.needs_addresses and not renewed)._asdict(),
            new_addresses=renewed,
            restarts_log=renewed,
        )

    # --- the outcome --------------------------------------------------------------------------------------------------

    def _decide(self) -> Outcome | None:
        spec, reason = self.spec, self._reason("Failed")
        return (
            self._limits()
            or overdue(spec.active_deadline_seconds, self._started_at, self._steady, reason)
            or self._success()
            or self._failure()
            or self._no_decision()
        )

    def _limits(self) -> Outcome | None:
        limit, restarts = self.spec.backoff_limit, self.replicas.restarts
        pod = self.replicas.last_restarted
        if limit is not None:
            if pod is None or not restarts or restarts < limit:
                return None
            return self._failed_by(pod, f"{pod.message}; the back-off limit of {limit} is reached")
        count, pod = self.replicas.failures_in_a_row()
        if pod is None or count < UNLIMITED_FAILURES:
            return None
        message = f"{pod.message}; it failed {count} times in a row, the limit here without runPolicy.backoffLimit"
        return self._failed_by(pod, message, TOO_MANY_RESTARTS)

    def _success(self) -> Outcome | None:
        if not self.kind.has_succeeded(self.replicas):
            return None
        done = [p for p in self.replicas.newest.values() if p.phase is Phase.SUCCEEDED]
        until = self._steady + timedelta(seconds=self.kind.late_seconds)
        return success(self._reason("Succeeded"), f"{self._title} is successfully completed", done, until)

    def _failure(self) -> Outcome | None:
        for pod in self.replicas.failed:
            if not self.replicas.is_retried(pod):
                return self._failed_by(pod, pod.message)
        return None

    def _no_decision(self) -> Outcome | None:
        """Fail a job whose replicas have all ended well and that still has not succeeded: nothing more would happen."""
        pods = self.replicas.newest.values()
        if len(pods) < self.spec.total or any(p.phase is not Phase.SUCCEEDED for p in pods):
            return None
        message = "all replicas have ended, and none of them is one that decides about success"
        return failure(self._reason("Failed"), message)

    def _failed_by(self, pod: PodRecord, message: str, reason: str = "Failed") -> Outcome:
        return failure(self._reason(reason), message, pod, held_until([self._steady]))

    # --- conditions and status ----------------------------------------------------------------------------------------

    def _with(
        self, conditions: Conditions, type_: TrainingCondition, message: str, reason: str = "", *, holds: bool = True
    ) -> Conditions:
        """Return the list with a condition set, the very same list when it already says so.

        Without a reason it is that of its type. Only of Retrying another message is a change: the others say the same
        as long as they have the same reason.
        """
        reason, moment = reason or self._reason(type_), format_time(self._wall)
        now = {"lastUpdateTime": moment, "lastTransitionTime": moment}
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

    def _started_conditions(self) -> Conditions:
        """Return the conditions of a job that is not suspended."""
        conditions, type_ = self._conditions, TrainingCondition.SUSPENDED
        if all(c["type"] != type_ for c in conditions):
            return conditions
        return self._with(conditions, type_, f"{self._title} is resumed.", self._reason("Resumed"), holds=False)

    def _going_conditions(self, missing: list[tuple[str, int]]) -> Conditions:
        conditions = self._started_conditions()
        primary = self.kind.primary(self.spec)
        pods = [p for place, p in self.replicas.newest.items() if not primary or place in primary]
        if any(p.phase is Phase.RUNNING and not p.stopping for p in pods):
            conditions = self._with(conditions, TrainingCondition.RUNNING, f"{self._title} is running.")
        if text := self._retry_message():
            conditions = self._with(conditions, TrainingCondition.RETRYING, text, Reason.POD_FAILED)
        again = [self.replicas.newest[place] for place in missing if place in self.replicas.newest]
        if again:
            message = f"{self._title} is restarting because {', '.join(f'{p.role}-{p.index}' for p in again)} failed."
            conditions = self._with(conditions, TrainingCondition.RESTARTING, message)
        return conditions

    def _retry_message(self) -> str:
        """Return how the last try of a replica failed; empty when nothing has failed yet."""
        pod = self.replicas.last_restarted
        if pod is None:
            return ""
        limit = self.spec.backoff_limit
        if limit is None:
            tries, most = self.replicas.failures_in_a_row()[0], UNLIMITED_FAILURES
        else:
            due = sum(pod.restart_due for pod in self.replicas.active)
            tries, most = self.replicas.restarts + due, max(limit, 1)
        return f"{failure_cause(_explained(pod))}; try {min(tries + 1, most)} of {most}"

    def _status(
        self,
        conditions: Conditions,
        *,
        replicas: Replicas | None = None,
        suspended: bool = False,
        ended: bool = False,
        success: bool = False,
    ) -> dict[str, Any]:
        shown = self.replicas if replicas is None else replicas
        idle = frozenset[str]() if suspended or ended else self.kind.idle(self.spec)
        started_at = None if suspended else self._started_at
        fields = {
            "conditions": [dict(c) for c in conditions],
            "replicaStatuses": self._replica_statuses(shown, idle, succeeded=ended and success),
            "startTime": format_time(started_at) if started_at else None,
            "completionTime": format_time(self._wall) if ended else None,
        }
        status = {field: value for field, value in fields.items() if value}
        before = dict(self.observed.job.get("status") or {})
        reconciled = before.pop("lastReconcileTime", None)
        if reconciled is None or before != status:
            reconciled = format_time(self._wall)
        return {**status, "lastReconcileTime": reconciled}

    def _replica_statuses(self, replicas: Replicas, idle: frozenset[str], *, succeeded: bool) -> dict[str, Any]:
        """Return how many replicas of each type run, succeeded and failed; counts of zero are left out.

        Replicas that the job stopped have not failed; when it has succeeded, they count as succeeded too. Those that
        are idle count as active.
        """
        found = {}
        for role, spec in self.spec.roles.items():
            pods = [pod for (r, _), pod in replicas.newest.items() if r == role]
            active = sum(p.phase is Phase.RUNNING and not p.stopping for p in pods) + (role in idle) * spec.count
            failed = sum(p.phase is Phase.FAILED and not p.stopping and not succeeded for p in pods)
            done = sum(p.phase is Phase.SUCCEEDED or (succeeded and p.phase is Phase.FAILED) for p in pods)
            if succeeded:
                active, done = 0, done + active
            counts = {"active": active, "failed": failed, "succeeded": done}
            labels = self.kind.labels(self._name, role, 0, is_primary=False)
            found[spec.type] = {
                **{name: count for name, count in counts.items() if count},
                "selector": ",".join(f"{name}={labels[name]}" for name in OF_A_ROLE),
            }
        return found

    @property
    def _conditions(self) -> Conditions:
        """The conditions, of which the first says that the job was created."""
        conditions = conditions_of(self.observed.job.get("status") or {})
        if conditions:
            return conditions
        return self._with((), TrainingCondition.CREATED, f"{self._title} is created.")

    def _no_replicas(self) -> Replicas:
        return Replicas(self.spec, (), self.kind.container)

    def _reason(self, type_: str) -> str:
        return f"{self.kind.kind.kind}{type_}"


def _explained(pod: PodRecord) -> str:
    return with_last_output(pod.message, pod.last_output)
