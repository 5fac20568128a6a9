"""What to do about a JobSet now. Pure.

Each Job of a JobSet goes as a batch Job does: its pods are distinguished by their role, and its status is kept in the
memory of the plan. Over them stand the policies of the JobSet, evaluated in the order of its controller: failed Jobs
first, then success. Two outcomes are ours and come before them: the trial was stopped early, and a pod that can never
start on this machine.

An outcome is final at once. Pods that still run are stopped, and when the last one has ended and its metrics are
stored, the condition is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from katib.model.failure_text import failure_cause, with_remark
from katib.places.machine.jobs.batch.plan import plan as plan_job
from katib.places.machine.jobs.conditions import (
    Conditions,
    JobCondition,
    Outcome,
    Reason,
    conditions_of,
    earliest,
    early_outcome,
    end_of,
    going,
    held_until,
    may_yet_fail,
    settled,
    true_condition,
    with_condition,
    with_message,
    with_suspension,
    without_port,
    without_probes,
)
from katib.places.machine.jobs.jobset.spec import COMPLETE, Dependency, JobSetSpec, ReplicatedJob, child_job
from katib.places.machine.jobs.kind import Observed, Plan, PodStart
from katib.places.machine.pods.records import Phase, PodRecord

_RESTART = "RestartJobSet"
_RESTART_FREELY = "RestartJobSetAndIgnoreMaxRestarts"
_RESTART_JOB = "RestartJob"
_RESTART_JOB_FREELY = "RestartJobAndIgnoreMaxRestarts"
ACTIONS = ("FailJobSet", _RESTART, _RESTART_FREELY, _RESTART_JOB, _RESTART_JOB_FREELY)
_COUNTED = frozenset({_RESTART, _RESTART_JOB})


class _Observation(NamedTuple):
    """What the plan of a Job depends on, besides the time and what it remembers."""

    replicated: ReplicatedJob
    suspend: bool
    pods: tuple[PodRecord, ...]


class _Child(NamedTuple):
    """A Job of the JobSet that was created.

    Attributes:
        last: Its last plan.
        settled_for: What that looked at if it wanted nothing: as long as that is so, it wants nothing again.
    """

    last: Plan = Plan({})
    settled_for: _Observation | None = None

    @property
    def end(self) -> Mapping[str, Any]:
        """The condition that says it is over; empty while it is not."""
        return end_of(self.last.status) or {}

    @property
    def is_complete(self) -> bool:
        return self.end.get("type") == JobCondition.COMPLETE

    @property
    def has_failed(self) -> bool:
        return bool(self.end) and not self.is_complete

    def is_ready(self, replicated: ReplicatedJob) -> bool:
        """Return whether all its pods are ready or have succeeded."""
        job, status = replicated.template.get("spec", {}), self.last.status
        wanted = min(job.get("parallelism", 1), job.get("completions", job.get("parallelism", 1)))
        return self.is_complete or status.get("ready", 0) + status.get("succeeded", 0) >= wanted

    def failure(self, reason: str, role: str, more: str = "") -> Outcome:
        """Return the failure of the JobSet because of this Job."""
        text = f"job {role} failed ({self.end.get('reason', '')}): {self.end.get('message', '')}"
        return Outcome(success=False, reason=reason, message=with_remark(text, more) if more else text)


@dataclass(frozen=True, slots=True)
class _State:
    """What is remembered between plans.

    Attributes:
        children: The Jobs that were created, by the role of their pods.
        retired: Names of pods of Jobs that were replaced.
        attempts: How often the Job of a role was replaced by itself.
        restarts: How often all Jobs were replaced.
        counted: How many restarts of either kind count towards maxRestarts.
        not_before: When the next try begins.
        failure: Why it is tried again.
        has_moved: Whether its pods have other ports than at first: one had been taken.
        is_void: Whether what was reported so far counts no more once the next pods start.
        outcome: How it ends; None while that is open.
    """

    children: Mapping[str, _Child] = field(default_factory=dict)
    retired: frozenset[str] = frozenset()
    attempts: Mapping[str, int] = field(default_factory=dict)
    restarts: int = 0
    counted: int = 0
    not_before: datetime | None = None
    failure: str = ""
    has_moved: bool = False
    is_void: bool = False
    outcome: Outcome | None = None


def plan(observed: Observed, ending: Outcome | None = None, *, moves: bool = False) -> Plan:
    """Decide about a JobSet.

    Args:
        observed: The JobSet as it is now.
        ending: What the owner of the JobSet decided about its end.
        moves: Whether its pods get their ports from us, so that they can move when one is taken.
    """
    spec = JobSetSpec.of(observed.job)
    return settled(observed, spec) or _Planning(observed, spec, observed.memory.get("jobset", _State())).plan(
        ending, moves=moves
    )


@dataclass(slots=True)
class _Planning:
    """One decision about a JobSet that is not over; its state becomes what the next one starts from."""

    observed: Observed
    spec: JobSetSpec
    state: _State

    def plan(self, ending: Outcome | None, *, moves: bool) -> Plan:
        outcome = self.state.outcome or early_outcome(self._current) or ending
        if outcome is not None:
            return self._finish(outcome)
        can_move = moves and not self.state.has_moved
        if can_move and not without_port(self._current):
            failed_at = [p.finished_at for p in self._current if p.phase is Phase.FAILED and not p.stopping]
            if (until := held_until(failed_at)) and self._now < until and may_yet_fail(self._current):
                return self._go_on(Plan({}, wake_at=until))
        jobs = self._plan_jobs()
        failed = {role: child for role, child in self.state.children.items() if child.has_failed}
        if failed:
            taken = without_port(self._current) if can_move else None
            return self._move(taken) if taken else self._answer_failure(failed)
        outcome = self._success()
        return self._go_on(jobs) if outcome is None else self._finish(outcome)

    @property
    def _now(self) -> datetime:
        return self.observed.moment.steady

    @property
    def _current(self) -> tuple[PodRecord, ...]:
        """The pods of Jobs that were not replaced."""
        return tuple(pod for pod in self.observed.pods if pod.name not in self.state.retired)

    # --- the Jobs -----------------------------------------------------------------------------------------------------

    def _plan_jobs(self) -> Plan:
        """Plan every Job that exists, create those whose time has come, and return what all of them want."""
        state, is_first = self.state, not self.state.children
        children = dict(state.children)
        ending = {p.role for p in self.observed.pods if p.name in state.retired and not p.is_finished}
        held = state.not_before is not None and self._now < state.not_before
        plans = [Plan({}, wake_at=state.not_before, waiting=state.failure)] if held else []
        for replicated in self.spec.replicated_jobs:
            missing = next((d for d in replicated.depends_on if not self._is_reached(d, children)), None)
            if missing is not None:
                waiting = f"replicated job {replicated.name} waits for {missing.name} to be {missing.status}"
                plans.append(Plan({}, waiting=waiting))
            may_begin = not held and missing is None and not (is_first and ending)
            for index, role in enumerate(replicated.roles()):
                if role in children or (may_begin and role not in ending):
                    children[role], wanted = self._plan_job(replicated, index, children.get(role, _Child()))
                    plans.append(wanted)
        starts = tuple(start for wanted in plans for start in wanted.start)
        is_void = state.is_void or any(wanted.restarts_log for wanted in plans)
        current = {pod.name for pod in self._current}
        counts = [not p.is_finished or (p.name in current and p.phase is Phase.SUCCEEDED) for p in self.observed.pods]
        restarts_log = is_void and bool(starts) and not any(counts)  # of what was reported, whatever becomes of others
        self.state = replace(state, children=children, is_void=state.is_void and not restarts_log)
        return Plan(
            {},
            start=starts,
            stop=tuple(name for wanted in plans for name in wanted.stop),
            wake_at=earliest(*(wanted.wake_at for wanted in plans)),
            waiting=next((wanted.waiting for wanted in plans if wanted.waiting), ""),
            restarts_log=restarts_log,
        )

    def _plan_job(self, replicated: ReplicatedJob, index: int, child: _Child) -> tuple[_Child, Plan]:
        """Plan a Job unless nothing has changed for it, and return what it wants."""
        role, last = replicated.roles()[index], child.last
        seen = _Observation(replicated, self.spec.suspend, tuple(p for p in self._current if p.role == role))
        if child.settled_for == seen and (last.wake_at is None or last.wake_at > self._now):
            return child, last  # which wants nothing
        job = child_job(self.observed.job, replicated, index, suspend=seen.suspend) | {"status": last.status}
        decision = plan_job(
            replace(self.observed, job=job, pods=seen.pods, started_at=last.started_at, memory=last.memory)
        )
        attempt = self.state.restarts + self.state.attempts.get(role, 0)
        starts = (PodStart(s.index, role, details={**s.details, "attempt": attempt}) for s in decision.start)
        is_settled = not decision.start and not decision.stop
        return _Child(decision, seen if is_settled else None), replace(decision, start=tuple(starts))

    def _is_reached(self, dependency: Dependency, children: Mapping[str, _Child]) -> bool:
        found = next((job for job in self.spec.replicated_jobs if job.name == dependency.name), None)
        if found is None:
            return False
        of_it = [children.get(role) for role in found.roles()]
        is_complete = dependency.status == COMPLETE
        return all(c is not None and (c.is_complete if is_complete else c.is_ready(found)) for c in of_it)

    # --- the outcome --------------------------------------------------------------------------------------------------

    def _success(self) -> Outcome | None:
        spec, children = self.spec, self.state.children
        targets = [job for job in spec.replicated_jobs if not spec.success_targets or job.name in spec.success_targets]
        jobs = [children.get(role, _Child()) for job in targets for role in job.roles()]
        states = [child.is_complete for child in jobs]
        done = any(states) if spec.success_operator == "Any" else bool(states) and all(states)
        if not done:
            return None
        texts = [child.end.get("message", "").partition("; ")[2] for child in jobs]  # such as a log that was cut short
        message = "; ".join(["jobset completed successfully", *dict.fromkeys(filter(None, texts))])
        return Outcome(success=True, reason="AllJobsCompleted", message=message)

    def _answer_failure(self, failed: Mapping[str, _Child]) -> Plan:
        """Do what the failure policy says; without one a failed Job fails the JobSet."""
        spec = self.spec
        in_order = sorted(failed.items(), key=lambda item: str(item[1].end.get("lastTransitionTime", "")))
        first, child = in_order[0]
        if spec.failure_rules is None:
            return self._finish(child.failure("FailedJobs", first))
        role, action = next(
            (
                (role, rule.action)
                for rule in spec.failure_rules
                for role, child in in_order
                if rule.fits(
                    spec.replicated_job(role)[0].name, child.end.get("reason", ""), child.end.get("message", "")
                )
            ),
            (first, _RESTART),
        )
        if action == "FailJobSet":
            return self._finish(failed[role].failure("FailJobSetFailurePolicyAction", role))
        if action in _COUNTED and self.state.counted >= spec.max_restarts:
            more = f"all {spec.max_restarts} restarts were made"
            return self._finish(failed[role].failure("ReachedMaxRestarts", role, more))
        return self._restart(role, action, failed[role])

    def _restart(self, role: str, action: str, failed: _Child) -> Plan:
        """Stop the pods of all Jobs, or of the one that failed, so that they are made again."""
        state, alone = self.state, action in {_RESTART_JOB, _RESTART_JOB_FREELY}
        made = state.restarts + sum(state.attempts.values())
        which = f"job {role}" if alone else "the JobSet"
        self.state = replace(
            state,
            attempts={**state.attempts, role: state.attempts.get(role, 0) + 1} if alone else state.attempts,
            restarts=state.restarts + (not alone),
            counted=state.counted + (action in _COUNTED),
            not_before=self._now + timedelta(seconds=self.observed.delays.restart.pause_seconds(made)),
            failure=f"{failure_cause(failed.end.get('message', ''))}; {which} starts again, restart {made + 1}",
        )
        return self._replace_jobs(role if alone else "")

    def _move(self, pod: PodRecord) -> Plan:
        """Begin once more with other ports; that is no restart that counts."""
        failure = f"pod {pod.name} found its port taken: {pod.last_output}; all pods start again with other ports"
        self.state = replace(self.state, has_moved=True, is_void=True, failure=failure)
        return replace(self._replace_jobs(), new_addresses=True)

    def _replace_jobs(self, role: str = "") -> Plan:
        """Retire the pods of a Job, or of all Jobs, and stop those that still run; when none does, go on at once."""
        pods = [pod for pod in self._current if role in {"", pod.role}]
        self.state = replace(
            self.state,
            children={r: c for r, c in self.state.children.items() if role and r != role},
            retired=self.state.retired | {pod.name for pod in pods},
        )
        if all(pod.is_finished for pod in pods):
            return self._go_on(self._plan_jobs())
        return self._go_on(Plan({}, stop=tuple(pod.name for pod in going(pods)), waiting=self.state.failure))

    # --- the plan -----------------------------------------------------------------------------------------------------

    def _go_on(self, jobs: Plan) -> Plan:
        """Return a plan with what the Jobs want, and the status of a JobSet that goes on."""
        now, suspend, retrying = self.observed.moment.wall, self.spec.suspend, JobCondition.RETRYING
        conditions = conditions_of(self.observed.job.get("status") or {})
        reasons = ("SuspendedJobs", "ResumeJobs")
        conditions = with_suspension(conditions, "jobset is", reasons, now, suspended=suspend)
        if self.spec.in_order and not suspend:
            conditions = self._startup(conditions)
        tries = (true_condition(conditions_of(c.last.status), retrying) for c in self.state.children.values())
        if text := next((held["message"] for held in tries if held), self.state.failure):
            conditions = with_message(conditions, retrying, reason=Reason.POD_FAILED, message=text, now=now)
        return replace(
            jobs,
            status=self._status(conditions),
            started_at=None if suspend else self.observed.started_at or self._now,
            waiting="its job is suspended" if suspend else jobs.waiting,
            memory={**self.observed.memory, "jobset": self.state},
        )

    def _finish(self, outcome: Outcome) -> Plan:
        """Stop what still runs; say how it ended when nothing does."""
        self.state = replace(self.state, outcome=outcome)
        open_ = [pod for pod in self.observed.pods if not pod.is_finished]
        conditions = conditions_of(self.observed.job.get("status") or {})
        terminal = "" if open_ else "Completed" if outcome.success else "Failed"
        if terminal:
            others, now = (c for c in conditions if c["type"] != JobCondition.RETRYING), self.observed.moment.wall
            conditions = with_condition(
                tuple(others), terminal, reason=outcome.reason, message=outcome.message, now=now
            )
        return Plan(
            self._status(conditions) | ({"terminalState": terminal} if terminal else {}),
            stop=tuple(pod.name for pod in going(open_)),
            started_at=self.observed.started_at,
            memory={**self.observed.memory, "jobset": self.state},
        )

    def _startup(self, conditions: Conditions) -> Conditions:
        jobs, done = self.spec.replicated_jobs, "StartupPolicyCompleted"
        if true_condition(conditions, done):
            return conditions
        over = all(self._is_reached(Dependency(job.name, "Ready"), self.state.children) for job in jobs)
        type_, text = (done, "has completed") if over else ("StartupPolicyInProgress", "is in progress")
        others = tuple(c for c in conditions if not over or c["type"] != "StartupPolicyInProgress")
        return with_condition(
            others, type_, reason=type_, message=f"startup policy {text}", now=self.observed.moment.wall
        )

    def _status(self, conditions: Conditions) -> dict[str, Any]:
        return {
            "conditions": without_probes(conditions),
            "replicatedJobsStatus": [self._counts(job) for job in self.spec.replicated_jobs],
            "restarts": self.state.restarts,
            "restartsCountTowardsMax": self.state.counted,
        }

    def _counts(self, replicated: ReplicatedJob) -> dict[str, Any]:
        """Return how many Jobs of a replicated job stand how."""
        of_it = [self.state.children[role] for role in replicated.roles() if role in self.state.children]
        open_ = [] if self.state.outcome is not None else [child for child in of_it if not child.end]
        return {
            "name": replicated.name,
            "ready": sum(child.is_ready(replicated) for child in open_),
            "succeeded": sum(child.is_complete for child in of_it),
            "failed": sum(child.has_failed for child in of_it),
            "active": sum(bool(child.last.status.get("active")) for child in open_),
            "suspended": len(open_) if self.spec.suspend else 0,
        }
