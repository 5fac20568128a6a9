"""What to do about a JobSet now. Pure.

Each Job of a JobSet goes as a batch Job does: its pods are distinguished by their role, and its status is kept in the
memory of the plan. Over them stand the policies of the JobSet, evaluated in the order of its controller: failed Jobs
first, then success. Two outcomes are ours and come before them: the trial was stopped early, and a pod that can never
start on this machine.

An outcome is final at once. Pods that still run are stopped, and when the last one has ended and its metrics are
stored, the condition is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from katib.api.failure_text import failure_cause, with_remark
from katib.local.jobs.batch.plan import plan as plan_job
from katib.local.jobs.conditions import (
    Conditions,
    JobCondition,
    Reason,
    conditions_of,
    end_of,
    true_condition,
    with_condition,
    with_message,
    without_probes,
)
from katib.local.jobs.jobset.spec import COMPLETE, Dependency, JobSetSpec, ReplicatedJob, child_job
from katib.local.jobs.kind import Observed, Plan, PodStart
from katib.local.jobs.outcomes import DOUBT_SECONDS, Outcome, early_outcome, going, settled
from katib.local.pods.records import Phase, PodRecord

_RESTART = "RestartJobSet"
_RESTART_FREELY = "RestartJobSetAndIgnoreMaxRestarts"
_RESTART_JOB = "RestartJob"
_RESTART_JOB_FREELY = "RestartJobAndIgnoreMaxRestarts"
ACTIONS = ("FailJobSet", _RESTART, _RESTART_FREELY, _RESTART_JOB, _RESTART_JOB_FREELY)
_PORT_TAKEN = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)
_COUNTED = frozenset({_RESTART, _RESTART_JOB})


@dataclass(frozen=True, slots=True)
class _Child:
    """A Job of the JobSet that was created: what its last plan returned.

    Attributes:
        status: Its status.
        started_at: From when its deadline counts.
        memory: What its plan remembers.
        wake_at: When it is to be planned again even if nothing happens.
        waiting: Why nothing more of it is started.
        settled_for: What its last plan looked at if it wanted nothing: as long as that is so, it wants nothing again.
    """

    status: Mapping[str, Any] = field(default_factory=dict)
    started_at: datetime | None = None
    memory: Mapping[str, Any] = field(default_factory=dict)
    wake_at: datetime | None = None
    waiting: str = ""
    settled_for: tuple[ReplicatedJob, bool, tuple[PodRecord, ...]] | None = None

    @property
    def end(self) -> Mapping[str, Any] | None:
        return end_of(self.status)

    @property
    def is_complete(self) -> bool:
        return self.end is not None and self.end["type"] == JobCondition.COMPLETE


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


@dataclass(frozen=True, slots=True)
class _Turn:
    """What the Jobs want now."""

    children: Mapping[str, _Child]
    start: tuple[PodStart, ...] = ()
    stop: tuple[str, ...] = ()
    wake_at: datetime | None = None
    waiting: str = ""
    anew: bool = False


def plan(observed: Observed, ending: Outcome | None = None, *, moves: bool = False) -> Plan:
    """Decide about a JobSet.

    Args:
        observed: The JobSet as it is now.
        ending: What the owner of the JobSet decided about its end.
        moves: Whether its pods get their ports from us, so that they can move when one is taken.
    """
    spec = JobSetSpec.of(observed.job)
    if done := settled(observed, spec):
        return done
    state: _State = observed.memory.get("jobset", _State())
    outcome = state.outcome or early_outcome(p for p in observed.pods if p.name not in state.retired) or ending
    if outcome is not None:
        return _finish(observed, spec, state, outcome)
    if moves and (until := _doubt(observed, state)):
        return _go_on(observed, spec, state, _Turn(state.children, wake_at=until))
    state, turn = _turned(observed, spec, state)
    failed = {role: child for role, child in turn.children.items() if child.end and not child.is_complete}
    if failed:
        taken = _port_taken(observed.pods, state) if moves and not state.has_moved else None
        return _move(observed, spec, state, taken) if taken else _answer_failure(observed, spec, state, failed)
    if outcome := _success(spec, turn.children):
        return _finish(observed, spec, state, outcome)
    return _go_on(observed, spec, state, turn)


# --- the Jobs ---------------------------------------------------------------------------------------------------------


def _turned(observed: Observed, spec: JobSetSpec, state: _State) -> tuple[_State, _Turn]:
    """Plan every Job that exists, and create those whose time has come."""
    children = dict(state.children)
    ending = {pod.role for pod in observed.pods if pod.name in state.retired and not pod.is_finished}
    pods: dict[str, list[PodRecord]] = {}
    for pod in observed.pods:
        if pod.name not in state.retired:
            pods.setdefault(pod.role, []).append(pod)
    start: list[PodStart] = []
    stop: list[str] = []
    anew = state.is_void
    moments: list[datetime] = []
    waiting: list[str] = []
    held = state.not_before is not None and observed.moment.steady < state.not_before
    if held and state.not_before is not None:
        moments.append(state.not_before)
        waiting.append(state.failure)
    for replicated in spec.replicated_jobs:
        missing = next((d for d in replicated.depends_on if not _is_reached(d, spec, children)), None)
        if missing is not None:
            waiting.append(f"replicated job {replicated.name} waits for {missing.name} to be {missing.status}")
        for index, role in enumerate(replicated.roles()):
            if role not in children:
                whole_set_ends = bool(ending) and not children
                if held or missing is not None or role in ending or whole_set_ends:
                    continue
                children[role] = _Child()
            child, looked_at = children[role], (replicated, spec.suspend, tuple(pods.get(role, ())))
            is_due = child.wake_at is not None and child.wake_at <= observed.moment.steady
            if child.settled_for != looked_at or is_due:
                decision = _plan_child(observed, looked_at, index, child)
                child = children[role] = _Child(
                    decision.status,
                    decision.started_at,
                    decision.memory,
                    decision.wake_at,
                    decision.waiting,
                    None if decision.start or decision.stop else looked_at,
                )
                attempt = state.restarts + state.attempts.get(role, 0)
                start += [PodStart(s.index, role, details={**s.details, "attempt": attempt}) for s in decision.start]
                stop += decision.stop
                anew = anew or decision.anew
            moments += [] if child.wake_at is None else [child.wake_at]
            waiting += [child.waiting] if child.waiting else []
    counting = (  # what these reported counts whatever becomes of others
        not pod.is_finished or (pod.name not in state.retired and pod.phase is Phase.SUCCEEDED) for pod in observed.pods
    )
    anew = anew and bool(start) and not any(counting)
    first = next(iter(waiting), "")
    turn = _Turn(children, tuple(start), tuple(stop), min(moments, default=None), first, anew)
    return replace(state, children=children, is_void=state.is_void and not anew), turn


def _plan_child(
    observed: Observed, looked_at: tuple[ReplicatedJob, bool, tuple[PodRecord, ...]], index: int, child: _Child
) -> Plan:
    replicated, suspend, pods = looked_at
    job = child_job(observed.job, replicated, index, suspend=suspend) | {"status": child.status}
    return plan_job(replace(observed, job=job, pods=pods, started_at=child.started_at, memory=child.memory))


def _is_reached(dependency: Dependency, spec: JobSetSpec, children: Mapping[str, _Child]) -> bool:
    found = next((job for job in spec.replicated_jobs if job.name == dependency.name), None)
    if found is None:
        return False
    of_it = [children.get(role) for role in found.roles()]
    if dependency.status == COMPLETE:
        return all(child is not None and child.is_complete for child in of_it)
    return all(child is not None and _is_ready(found, child) for child in of_it)


def _is_ready(replicated: ReplicatedJob, child: _Child) -> bool:
    job = replicated.template.get("spec", {})
    wanted = min(job.get("parallelism", 1), job.get("completions", job.get("parallelism", 1)))
    return child.is_complete or child.status.get("ready", 0) + child.status.get("succeeded", 0) >= wanted


# --- the outcome ------------------------------------------------------------------------------------------------------


def _success(spec: JobSetSpec, children: Mapping[str, _Child]) -> Outcome | None:
    targets = [job for job in spec.replicated_jobs if not spec.success_targets or job.name in spec.success_targets]
    states = [role in children and children[role].is_complete for job in targets for role in job.roles()]
    done = any(states) if spec.success_operator == "Any" else bool(states) and all(states)
    if not done:
        return None
    ends = [children[role].end for job in targets for role in job.roles() if role in children]
    texts = [end["message"].partition("; ")[2] for end in ends if end]  # such as a log that was cut short
    message = "; ".join(["jobset completed successfully", *dict.fromkeys(filter(None, texts))])
    return Outcome(success=True, reason="AllJobsCompleted", message=message)


def _answer_failure(observed: Observed, spec: JobSetSpec, state: _State, failed: Mapping[str, _Child]) -> Plan:
    """Do what the failure policy says; without one a failed Job fails the JobSet."""
    first = min(failed, key=lambda role: _ended_at(failed[role]))
    if spec.failure_rules is None:
        return _finish(observed, spec, state, _failure("FailedJobs", first, failed[first]))
    role, action = next(
        (
            (role, rule.action)
            for rule in spec.failure_rules
            for role, child in sorted(failed.items(), key=lambda item: _ended_at(item[1]))
            if rule.fits(spec.replicated_job(role)[0].name, *_how(child))
        ),
        (first, _RESTART),
    )
    if action == "FailJobSet":
        return _finish(observed, spec, state, _failure("FailJobSetFailurePolicyAction", role, failed[role]))
    if action in _COUNTED and state.counted >= spec.max_restarts:
        outcome = _failure("ReachedMaxRestarts", role, failed[role], f"all {spec.max_restarts} restarts were made")
        return _finish(observed, spec, state, outcome)
    return _restart(observed, spec, state, role, action, failed[role])


def _restart(observed: Observed, spec: JobSetSpec, state: _State, role: str, action: str, failed: _Child) -> Plan:
    """Stop the pods of all Jobs, or of the one that failed, so that they are made again."""
    alone = action in {_RESTART_JOB, _RESTART_JOB_FREELY}
    made = state.restarts + sum(state.attempts.values())
    pause = timedelta(seconds=observed.delays.restart.pause_seconds(made))
    _, message = _how(failed)
    which = f"job {role}" if alone else "the JobSet"
    state = replace(
        state,
        attempts={**state.attempts, role: state.attempts.get(role, 0) + 1} if alone else state.attempts,
        restarts=state.restarts + (not alone),
        counted=state.counted + (action in _COUNTED),
        not_before=observed.moment.steady + pause,
        failure=f"{failure_cause(message)}; {which} starts again, restart {made + 1}",
    )
    return _anew(observed, spec, state, role if alone else "")


def _move(observed: Observed, spec: JobSetSpec, state: _State, pod: PodRecord) -> Plan:
    """Begin once more with other ports; that is no restart that counts."""
    failure = f"pod {pod.name} found its port taken: {pod.last_output}; all pods start again with other ports"
    moved = replace(state, has_moved=True, is_void=True, failure=failure)
    return replace(_anew(observed, spec, moved, ""), new_addresses=True)


def _anew(observed: Observed, spec: JobSetSpec, state: _State, role: str) -> Plan:
    """Retire the pods of a Job, or of all Jobs, and stop those that still run; when none does, go on at once."""
    pods = [p for p in observed.pods if p.name not in state.retired and (not role or p.role == role)]
    state = replace(
        state,
        children={r: c for r, c in state.children.items() if role and r != role},
        retired=state.retired | {pod.name for pod in pods},
    )
    if all(pod.is_finished for pod in pods):
        return _go_on(observed, spec, *_turned(observed, spec, state))
    stop = tuple(pod.name for pod in going(pods))
    return _go_on(observed, spec, state, _Turn(state.children, stop=stop, waiting=state.failure))


def _port_taken(pods: tuple[PodRecord, ...], state: _State) -> PodRecord | None:
    """Return a pod that could not listen on its port because another program does; None when there is none."""
    current = (pod for pod in pods if pod.name not in state.retired and pod.phase is Phase.FAILED)
    return next((pod for pod in current if _PORT_TAKEN.search(pod.last_output)), None)


def _doubt(observed: Observed, state: _State) -> datetime | None:
    """Return until when a failure is held back: a pod that runs may be about to end because its port is taken."""
    current = [pod for pod in observed.pods if pod.name not in state.retired and not pod.stopping]
    ends = [p.finished_at for p in current if p.phase is Phase.FAILED and p.finished_at is not None]
    goes_on = any(not pod.is_finished and not pod.failures for pod in current)
    if state.has_moved or not ends or not goes_on or _port_taken(observed.pods, state):
        return None
    until = max(ends) + timedelta(seconds=DOUBT_SECONDS)
    return until if observed.moment.steady < until else None


def _how(child: _Child) -> tuple[str, str]:
    end = child.end or {}
    return end.get("reason", ""), end.get("message", "")


def _ended_at(child: _Child) -> str:
    return str((child.end or {}).get("lastTransitionTime", ""))


def _failure(reason: str, role: str, child: _Child, more: str = "") -> Outcome:
    why, message = _how(child)
    text = f"job {role} failed ({why}): {message}"
    return Outcome(success=False, reason=reason, message=with_remark(text, more) if more else text)


# --- the plan ---------------------------------------------------------------------------------------------------------


def _go_on(observed: Observed, spec: JobSetSpec, state: _State, turn: _Turn) -> Plan:
    now = observed.moment.wall
    conditions = conditions_of(observed.job.get("status") or {})
    if spec.suspend:
        reason, message = "SuspendedJobs", "jobset is suspended"
        conditions = with_condition(conditions, "Suspended", reason=reason, message=message, now=now)
    elif true_condition(conditions, "Suspended"):
        reason, message = "ResumeJobs", "jobset is resumed"
        conditions = with_condition(conditions, "Suspended", holds=False, reason=reason, message=message, now=now)
    if spec.in_order and not spec.suspend:
        conditions = _startup(conditions, spec, turn.children, now)
    tries = (true_condition(conditions_of(child.status), JobCondition.RETRYING) for child in turn.children.values())
    if text := next((held["message"] for held in tries if held), state.failure):
        conditions = with_message(conditions, JobCondition.RETRYING, reason=Reason.POD_FAILED, message=text, now=now)
    return Plan(
        _status(conditions, spec, state),
        start=turn.start,
        stop=turn.stop,
        started_at=None if spec.suspend else observed.started_at or observed.moment.steady,
        wake_at=turn.wake_at,
        waiting="the job is suspended" if spec.suspend else turn.waiting,
        memory={**observed.memory, "jobset": state},
        anew=turn.anew,
    )


def _finish(observed: Observed, spec: JobSetSpec, state: _State, outcome: Outcome) -> Plan:
    """Stop what still runs; say how it ended when nothing does."""
    state = replace(state, outcome=outcome)
    open_ = [pod for pod in observed.pods if not pod.is_finished]
    conditions = conditions_of(observed.job.get("status") or {})
    terminal = ""
    if not open_:
        conditions = tuple(c for c in conditions if c["type"] != JobCondition.RETRYING)
        terminal = "Completed" if outcome.success else "Failed"
        conditions = with_condition(
            conditions, terminal, reason=outcome.reason, message=outcome.message, now=observed.moment.wall
        )
    return Plan(
        _status(conditions, spec, state, terminal),
        stop=tuple(pod.name for pod in going(open_)),
        started_at=observed.started_at,
        memory={**observed.memory, "jobset": state},
    )


def _startup(conditions: Conditions, spec: JobSetSpec, children: Mapping[str, _Child], now: datetime) -> Conditions:
    over = all(_is_reached(Dependency(job.name, "Ready"), spec, children) for job in spec.replicated_jobs)
    if true_condition(conditions, "StartupPolicyCompleted"):
        return conditions
    type_, other = ("StartupPolicyCompleted", "StartupPolicyInProgress")[:: 1 if over else -1]
    text = "startup policy has completed" if over else "startup policy is in progress"
    others = tuple(c for c in conditions if c["type"] != other)
    return with_condition(others, type_, reason=type_, message=text, now=now)


def _status(conditions: Conditions, spec: JobSetSpec, state: _State, terminal: str = "") -> dict[str, Any]:
    status: dict[str, Any] = {
        "conditions": without_probes(conditions),
        "replicatedJobsStatus": [_counts(job, spec, state) for job in spec.replicated_jobs],
        "restarts": state.restarts,
        "restartsCountTowardsMax": state.counted,
    }
    return status | ({"terminalState": terminal} if terminal else {})


def _counts(replicated: ReplicatedJob, spec: JobSetSpec, state: _State) -> dict[str, Any]:
    """Return how many Jobs of a replicated job stand how."""
    of_it = [state.children[role] for role in replicated.roles() if role in state.children]
    open_ = [] if state.outcome is not None else [child for child in of_it if child.end is None]
    return {
        "name": replicated.name,
        "ready": sum(_is_ready(replicated, child) for child in open_),
        "succeeded": sum(child.is_complete for child in of_it),
        "failed": sum(child.end is not None and not child.is_complete for child in of_it),
        "active": sum(bool(child.status.get("active")) for child in open_),
        "suspended": len(open_) if spec.suspend else 0,
    }
