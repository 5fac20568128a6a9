"""The plan of a gang: pods to start and stop, and the true status. Pure.

Each Job of a gang is planned as a batch Job; its pods are distinguished by their role. The policies of the gang stand
above: two outcomes of our own come first, an early stop and a pod that can never start on this machine; then, in the
order of the operators,

- if Jobs fail one by one (JobSet, TrainJob): deadline, failed Jobs, success;
- if pods share one fate (training jobs): back-off limit, deadline, success, failed pods. The training operator leaves
  a tie of success and failure to chance.

An outcome is final at once. After a success, pods may have a moment to end by themselves. The last condition is written
when no pod runs any more and all metrics are stored.

All pods start again with new ports, and no failure is counted, if the port of one was taken by another program. A
pod often fails because another one could not listen, and may be seen to end first, so a failure becomes final only
after a moment in which the listeners can fail, too. A *try* is the time between such restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Final, NamedTuple

from katib.engine.runtime.objects import Object
from katib.errors import Backoff
from katib.model.failure_text import failure_cause, with_last_output, with_remark
from katib.places.machine.jobs.batch.plan import plan as plan_job
from katib.places.machine.jobs.conditions import (
    DOUBT,
    FORGIVEN_LOSSES,
    JobCondition,
    JobOutcome,
    conditions_of,
    deadline_of,
    earliest,
    early_outcome,
    end_of,
    failure,
    going,
    may_yet_fail,
    overdue,
    settled,
    success,
    true_condition,
    without_port,
)
from katib.places.machine.jobs.gang.spec import (
    COMPLETE,
    FAIL,
    RESTART,
    RESTART_JOB,
    UNCOUNTED_RESTARTS,
    Dependency,
    Gang,
    GangGroup,
    JobFailures,
    ReplicaFailures,
)
from katib.places.machine.jobs.kind import ObservedJob, Plan, PodStart
from katib.places.machine.pods.records import UNCOUNTED, PodPhase, PodRecord

UNLIMITED_FAILURES: Final = 6
"""How often in a row a replica of a job without a back-off limit fails before the job is given up."""

RESET_SECONDS: Final = 600.0
"""A replica that ran for so long has earlier failures forgiven."""

FIRST_RETRYABLE_CODE: Final = 128
"""Exit codes of programs that were ended by a signal begin here."""

ATTEMPT: Final = "attempt"
"""Detail of a start: how often its Job was restarted."""

_OF_A_PLAN: Final = ("status", "started_at", "wake_at", "waiting", "memory")
"""The fields of a plan that the gang decides."""

_NO_PAUSE: Final = Backoff(0.0, 0.0)


class GangJob(NamedTuple):
    """A Job of a gang that was created.

    Attributes:
        settled_for: The input of that plan if it changed nothing; the same input changes nothing again.
    """

    last: Plan = Plan({})
    settled_for: tuple[object, ...] | None = None

    @property
    def end(self) -> Mapping[str, Any]:
        """Its last condition; empty while it is not over."""
        return end_of(self.last.status) or {}

    @property
    def is_complete(self) -> bool:
        return self.end.get("type") == JobCondition.COMPLETE

    @property
    def has_failed(self) -> bool:
        return bool(self.end) and not self.is_complete

    def is_ready(self, group: GangGroup) -> bool:
        """Return whether all its pods are ready or have succeeded."""
        spec, status = group.spec, self.last.status
        wanted = min(spec.get("parallelism", 1), spec.get("completions", spec.get("parallelism", 1)))
        return self.is_complete or status.get("ready", 0) + status.get("succeeded", 0) >= wanted


@dataclass(frozen=True, slots=True)
class GangState:
    """The state of a gang between plans, as plain values unless it has Jobs or an outcome.

    Attributes:
        first: Number of pods of earlier tries.
        first_of: The same of a role whose Job was restarted alone.
        renewals: Number of restarts with new ports.
        losses: Number of restarts because pods were lost.
        restarts: Number of restarts by the failure policy.
        attempts: The same of single Jobs, by the role of their pods.
        counted: Number of restarts of both that count towards maxRestarts.
        failure: The cause of the last restart.
        is_void: Whether the earlier readings and ports are discarded when the next pods start.
        jobs: By the role of their pods; empty if pods share one fate, since these say everything then.
        not_before: When the next try begins.
        failed_at: When a failure was seen that may turn out to be that of a port.
        outcome: How the gang ends; None while it is open.
    """

    first: int = 0
    first_of: Mapping[str, int] = field(default_factory=dict)
    renewals: int = 0
    losses: int = 0
    restarts: int = 0
    attempts: Mapping[str, int] = field(default_factory=dict)
    counted: int = 0
    failure: str = ""
    is_void: bool = False
    jobs: Mapping[str, GangJob] = field(default_factory=dict)
    not_before: datetime | None = None
    failed_at: datetime | None = None
    outcome: JobOutcome | None = None

    @classmethod
    def of(cls, memory: Mapping[str, Any]) -> GangState:
        return cls(**{name: memory[name] for name in _FIELDS if name in memory})

    def memory(self) -> dict[str, Any]:
        """Return the memory of this state, without defaults."""
        return {name: value for name in _FIELDS if (value := getattr(self, name))}


_FIELDS: Final = tuple(each.name for each in fields(GangState))


def plan_gang(gang: Gang, observed: ObservedJob, report: Callable[[GangPlanner], dict[str, Any]]) -> Plan:
    """Plan a gang.

    Args:
        observed: The job that it is made from, and its pods.
        report: Returns the status of a gang in the words of its kind.
    """
    return settled(observed, gang) or GangPlanner(gang, observed, report).plan()


class GangPlanner:
    """One decision about a gang that is not over; its state is the input of the next one.

    Attributes:
        state: The state; with the outcome, if there is one.
        jobs: Jobs by the role of their pods.
        moment: Now.
        again: Pods that are replaced now.
        renewal: The cause if all pods start again now for a reason of this machine.
    """

    def __init__(self, gang: Gang, observed: ObservedJob, report: Callable[[GangPlanner], dict[str, Any]]) -> None:
        self.gang = gang
        self.state = GangState.of(observed.memory)
        self.jobs = dict(self.state.jobs)
        self.moment = observed.moment
        self.status: Object = observed.job.get("status") or {}
        self.again: Sequence[PodRecord] = ()
        self.renewal = ""
        self._observed = observed
        self._report = report
        self._now = observed.moment.steady
        self._began = observed.started_at or self._now
        self._deadline = None if gang.suspend else deadline_of(gang.deadline_seconds, self._began)
        self._limits = gang.failures if isinstance(gang.failures, ReplicaFailures) else None

    @property
    def started_at(self) -> datetime | None:
        """The begin of the deadline; None while the gang is suspended."""
        return None if self.gang.suspend and self.state.outcome is None else self._began

    @property
    def is_over(self) -> bool:
        """Whether there is an outcome and no pod runs any more."""
        return self.state.outcome is not None and all(pod.is_finished for pod in self._observed.pods)

    def is_reached(self, dependency: Dependency) -> bool:
        """Return whether all Jobs of a group are ready, or complete."""
        group = next((group for group in self.gang.groups if group.name == dependency.name), None)
        if group is None:
            return False
        jobs, is_complete = [self.jobs.get(role) for role in group.roles], dependency.status == COMPLETE
        return all(job is not None and (job.is_complete if is_complete else job.is_ready(group)) for job in jobs)

    def plan(self) -> Plan:
        if outcome := self.state.outcome or early_outcome(self._pods):
            return self._finish(outcome)
        if self.gang.suspend and self._limits is not None:
            return self._forget()
        return (not self.gang.suspend and self._renewal()) or self._decide()

    def _decide(self) -> Plan:
        before, jobs = self.state, self._plan_jobs()
        if self._limits is None and self._is_failing and self._may_be_of_port():
            return self._hold_back(before)
        failures = (self._limit, self._failure)
        steps: tuple[Callable[[], JobOutcome | Plan | None], ...] = (self._overdue, self._failure, self._success)
        if self._limits is not None:
            steps = (self._limit, self._overdue, self._success, self._failure, self._stalemate)
        for step in steps if before.failed_at is None else (*failures, *steps):
            found = step()
            if isinstance(found, Plan):
                return found
            if found is not None:
                is_held = step in failures and self._may_be_of_port()
                return self._hold_back(before, found.message) if is_held else self._finish(found)
        return self._go_on(jobs)

    # --- pods ---------------------------------------------------------------------------------------------------------

    @property
    def _pods(self) -> tuple[PodRecord, ...]:
        first, of = self.state.first, self.state.first_of
        return tuple(p for n, p in enumerate(self._observed.pods) if n >= max(first, of.get(p.role, 0)))

    @property
    def _earlier(self) -> list[PodRecord]:
        """The pods of earlier tries that still end."""
        current = {id(pod) for pod in self._pods}
        return [pod for pod in self._observed.pods if id(pod) not in current and not pod.is_finished]

    @property
    def newest(self) -> dict[tuple[str, int | None], PodRecord]:
        """The newest pod of each role and index, in the order of the groups; surplus ones are left out."""
        found = {(pod.role, pod.index): pod for pod in self._pods}
        most = {role: group.spec.get("completions") for group in self.gang.groups for role in group.roles}

        def is_wanted(role: str, index: int | None) -> bool:
            limit = most.get(role)
            return role in most and (index is None or limit is None or index < limit)

        places = [place for place in found if is_wanted(*place)]
        order = {role: number for number, role in enumerate(most)}
        return {place: found[place] for place in sorted(places, key=lambda p: (order[p[0]], p[1] or 0))}

    @property
    def _failed(self) -> list[PodRecord]:
        """Newest pods that failed by themselves, in the order of their ends."""
        found = [pod for pod in self.newest.values() if pod.phase is PodPhase.FAILED and not pod.stopping]
        return sorted(found, key=lambda pod: pod.finished_at.timestamp() if pod.finished_at is not None else 0.0)

    def _is_replaced(self, pod: PodRecord) -> bool:
        """Return whether a failed pod is replaced: its Job has tries left, and its program was ended by a signal.

        The exit code is that of the training container. If that never ended, the pod failed for another reason, which
        counts as one that may pass.
        """
        if self._limits is None or not self.gang.group(pod.role).spec["backoffLimit"]:
            return False
        codes = (exit_.code for exit_ in pod.exits if exit_.container == self._limits.container)
        return next(codes, FIRST_RETRYABLE_CODE) >= FIRST_RETRYABLE_CODE

    @property
    def _replaced(self) -> list[PodRecord]:
        return [p for p in self._pods if p.phase is PodPhase.FAILED and not p.stopping and self._is_replaced(p)]

    # --- the Jobs -----------------------------------------------------------------------------------------------------

    def _plan_jobs(self) -> Plan:
        """Plan each Job that exists, create those whose time has come, and return their plans as one."""
        state, is_first, jobs = self.state, not self.state.jobs, self.jobs
        ending = {pod.role for pod in self._earlier}
        is_held = state.not_before is not None and self._now < state.not_before
        plans = [Plan({}, wake_at=state.not_before, waiting=state.failure)] if is_held else []
        for group in self.gang.groups:
            missing = next((d for d in group.depends_on if not self.is_reached(d)), None)
            if missing is not None:
                waiting = f"replicated job {group.name} waits for {missing.name} to be {missing.status}"
                plans.append(Plan({}, waiting=waiting))
            may_begin = not is_held and missing is None and not (is_first and ending)
            for role in group.roles:
                if role in jobs or (may_begin and role not in ending):
                    jobs[role], wanted = self._plan_job(group, role, jobs.get(role, GangJob()))
                    plans.append(wanted)
        starts = tuple(start for wanted in plans for start in wanted.start)
        is_void = state.is_void or (self._limits is None and any(wanted.restarts_log for wanted in plans))
        is_idle = all(pod.is_finished for pod in self._observed.pods)
        renews = is_void and bool(starts) and is_idle and all(p.phase is not PodPhase.SUCCEEDED for p in self._pods)
        self.state = replace(state, jobs=dict(jobs) if self._limits is None else {}, is_void=is_void and not renews)
        return Plan(
            {},
            start=starts,
            stop=tuple(name for wanted in plans for name in wanted.stop),
            wake_at=earliest(*(wanted.wake_at for wanted in plans)),
            waiting=next((wanted.waiting for wanted in plans if wanted.waiting), ""),
            new_addresses=renews,
            restarts_log=renews,
        )

    def _plan_job(self, group: GangGroup, role: str, job: GangJob) -> tuple[GangJob, Plan]:
        """Plan a Job unless nothing has changed for it, and return it with its plan."""
        suspend, last = self.gang.suspend, job.last
        pods = tuple(pod for pod in self._pods if pod.role == role)
        if job.settled_for == (group, suspend, pods) and (last.wake_at is None or last.wake_at > self._now):
            return job, last
        obj = {"spec": {**group.spec, "suspend": suspend}, "status": last.status}
        observed = replace(self._observed, job=obj, pods=pods, started_at=last.started_at, memory=last.memory)
        if self._limits is not None:  # the training operator replaces a pod at once
            observed = replace(observed, delays=replace(observed.delays, recreate=_NO_PAUSE))
        decision = plan_job(observed)
        attempt = self.state.restarts + self.state.attempts.get(role, 0)
        starts = (PodStart(s.index, role, group.after, {**s.details, ATTEMPT: attempt}) for s in decision.start)
        is_settled = not decision.start and not decision.stop
        settled_for = (group, suspend, pods) if is_settled else None
        return GangJob(decision, settled_for), replace(decision, start=tuple(starts))

    # --- the outcome --------------------------------------------------------------------------------------------------

    def _overdue(self) -> JobOutcome | None:
        if self._deadline is None:
            return None
        return overdue(self.gang.deadline_seconds, self._began, self._now, self.gang.reasons.deadline)

    def _success(self) -> JobOutcome | None:
        policy, newest = self.gang.success, self.newest
        ends = [
            self.jobs.get(role, GangJob()).is_complete
            if index is None
            else (role, index) in newest and newest[role, index].phase is PodPhase.SUCCEEDED
            for role, index in policy.targets
        ]
        if not ends or not (all(ends) if policy.needs_all else any(ends)):
            return None
        done = [pod for pod in newest.values() if pod.phase is PodPhase.SUCCEEDED]
        until = self._now + timedelta(seconds=policy.late_seconds)
        return success(self.gang.reasons.succeeded, self.gang.success_message, done, until)

    def _failure(self) -> JobOutcome | Plan | None:
        policy = self.gang.failures
        if isinstance(policy, JobFailures):
            return self._failed_job(policy)
        pod = next((pod for pod in self._failed if not self._is_replaced(pod)), None)
        return None if pod is None else failure(self.gang.reasons.failed, pod.message, pod)

    def _limit(self) -> JobOutcome | None:
        """Fail a gang whose pods were restarted too often."""
        if self._limits is None:
            return None
        active, limit = going(self._pods), self._limits.backoff_limit
        restarts = sum(pod.restarts for pod in active) + len(self._replaced)
        if limit is not None:
            pod = self._last_restarted
            if pod is None or not restarts or restarts < limit:
                return None
            message = f"{pod.message}; the back-off limit of {limit} is reached"
            return failure(self.gang.reasons.failed, message, pod)
        count, pod = self._failures_in_a_row()
        if pod is None or count < UNLIMITED_FAILURES:
            return None
        message = f"{pod.message}; it failed {count} times in a row, the limit here without runPolicy.backoffLimit"
        return failure(self.gang.reasons.restarts, message, pod)

    def _stalemate(self) -> JobOutcome | None:
        """Fail a gang whose pods have all succeeded although it has not: nothing more would happen."""
        pods, total = self.newest.values(), sum(group.spec["completions"] for group in self.gang.groups)
        if len(pods) < total or any(pod.phase is not PodPhase.SUCCEEDED for pod in pods):
            return None
        return failure(self.gang.reasons.failed, "all replicas have ended, and none of them decides about success")

    def _failed_job(self, policy: JobFailures) -> JobOutcome | Plan | None:
        """Apply the failure policy; without rules a failed Job fails the gang."""
        failed = [(role, job.end) for role, job in self.jobs.items() if job.has_failed]
        if not failed:
            return None
        failed.sort(key=lambda item: str(item[1].get("lastTransitionTime", "")))
        if policy.rules is None:
            return _job_failure("FailedJobs", *failed[0])
        role, end, action = next(
            (
                (role, end, rule.action)
                for rule in policy.rules
                for role, end in failed
                if rule.matches(self.gang.group(role).name, end.get("reason", ""), end.get("message", ""))
            ),
            (*failed[0], RESTART),
        )
        if action == FAIL:
            return _job_failure("FailJobSetFailurePolicyAction", role, end)
        is_counted = action not in UNCOUNTED_RESTARTS
        if is_counted and self.state.counted >= policy.max_restarts:
            return _job_failure("ReachedMaxRestarts", role, end, f"all {policy.max_restarts} restarts were made")
        self.state = replace(self.state, counted=self.state.counted + is_counted)
        is_alone = UNCOUNTED_RESTARTS.get(action, action) == RESTART_JOB
        return self._restart(role, failure_cause(end.get("message", "")), is_alone=is_alone)

    # --- restarts -----------------------------------------------------------------------------------------------------

    @property
    def _lost(self) -> PodRecord | None:
        """The first pod that ended with the guard, through no fault of its own."""
        return next((pod for pod in self._failed if any(exit_.lost for exit_ in pod.exits)), None)

    @property
    def _last_restarted(self) -> PodRecord | None:
        """The pod that explains the newest restart."""
        restarted = [pod for pod in going(self._pods) if pod.failures]
        return next(iter([*reversed(self._replaced), *reversed(restarted)]), None)

    def _failures_in_a_row(self) -> tuple[int, PodRecord | None]:
        """Return the most failures of a replica in a row, without a long good run between, and its pod."""
        return max(((self._row(pod), pod) for pod in self.newest.values()), key=itemgetter(0), default=(0, None))

    def _row(self, newest: PodRecord) -> int:
        count, later, long = newest.failures, newest.finished_at, timedelta(seconds=RESET_SECONDS)
        for pod in reversed(self._replaced):
            if (pod.role, pod.index) != (newest.role, newest.index):
                continue
            if pod.finished_at is None or (later is not None and later - pod.finished_at >= long):
                break
            count, later = count + 1, pod.finished_at
        return count

    def _renewal(self) -> Plan | None:
        """Begin again with all pods if one was lost or found its port taken."""
        state = self.state
        if (
            self._limits is not None
            and (pod := self._lost)
            and (state.losses < FORGIVEN_LOSSES or pod.reason in UNCOUNTED)
        ):
            state = replace(state, losses=state.losses + (pod.reason not in UNCOUNTED))
            cause = f"{pod.message}, with what had started it; all replicas start again"
        elif (pod := without_port(self.newest.values())) and state.renewals < self.gang.renewals:
            state = replace(state, renewals=state.renewals + 1)
            cause = f"{failure_cause(_explained(pod))}; all replicas start again with new ports"
        else:
            return None
        active, wait = going(self._pods), self._now if all(p.is_finished for p in self._pods) else self._deadline
        self.state = replace(state, is_void=True, failed_at=None, failure=cause)
        self._retire()
        self.renewal = cause
        return self._planned(stop=active, waiting=cause, wake_at=wait)

    def _retire(self, role: str = "") -> None:
        """Count the pods of a Job, or of all Jobs, as those of an earlier try."""
        count = len(self._observed.pods)
        self.jobs = {r: job for r, job in self.state.jobs.items() if role and r != role}
        first = {"first_of": {**self.state.first_of, role: count}} if role else {"first": count}
        self.state = replace(self.state, jobs=dict(self.jobs), **first)

    def _restart(self, role: str, cause: str, *, is_alone: bool) -> Plan:
        """Stop the pods of the failed Job, or of all Jobs, and make them again; at once if none of them runs."""
        state, attempts = self.state, self.state.attempts
        made = state.restarts + sum(attempts.values())
        pods = [pod for pod in self._pods if not is_alone or pod.role == role]
        self.state = replace(
            state,
            attempts={**attempts, role: attempts.get(role, 0) + 1} if is_alone else attempts,
            restarts=state.restarts + (not is_alone),
            not_before=self._now + timedelta(seconds=self._observed.delays.restart.pause_seconds(made)),
            failure=f"{cause}; {f'job {role}' if is_alone else 'the JobSet'} starts again, restart {made + 1}",
            failed_at=None,
        )
        self._retire(role if is_alone else "")
        if all(pod.is_finished for pod in pods):
            return self._go_on(self._plan_jobs())
        return self._planned(stop=going(pods), waiting=self.state.failure)

    # --- doubt --------------------------------------------------------------------------------------------------------

    def _may_be_of_port(self) -> bool:
        """Return whether a failure may turn out to be that of a port: a pod that listens has yet to end."""
        if self.state.renewals >= self.gang.renewals or self._now >= (self.state.failed_at or self._now) + DOUBT:
            return False
        newest, places = self.newest, self.gang.listeners
        return may_yet_fail(newest.values() if places is None else (newest[p] for p in places if p in newest))

    @property
    def _is_failing(self) -> bool:
        """Whether a Job has failed, or will when its last pod has ended."""
        noted = (true_condition(conditions_of(j.last.status), JobCondition.FAILURE_TARGET) for j in self.jobs.values())
        return any(noted) or any(job.has_failed for job in self.jobs.values())

    def _hold_back(self, before: GangState, waiting: str = "") -> Plan:
        """Start and stop nothing for a moment."""
        failed_at = before.failed_at or self._now
        self.state = replace(before, failed_at=failed_at)
        return self._planned(wake_at=failed_at + DOUBT, waiting=waiting)

    # --- the plan -----------------------------------------------------------------------------------------------------

    def _go_on(self, jobs: Plan) -> Plan:
        newest, starts = self.newest, ((start.role, start.index) for start in jobs.start)
        if self._limits is not None:
            self.again = [newest[place] for place in starts if place in newest]
        if not self._is_failing:
            self.state = replace(self.state, failed_at=None)
        planned = self._planned(waiting=jobs.waiting, wake_at=earliest(jobs.wake_at, self._deadline))
        return replace(jobs, **{name: getattr(planned, name) for name in _OF_A_PLAN})

    def _forget(self) -> Plan:
        """Suspend a gang whose pods share one fate: it begins anew when it is resumed."""
        count, active = len(self._observed.pods), going(self._observed.pods)
        self.state = GangState(first=count, is_void=count > 0)
        return self._planned(stop=active)

    def _finish(self, outcome: JobOutcome) -> Plan:
        """Stop the pods that still run, after a success those that do not end by themselves in time."""
        self.state = replace(self.state, outcome=outcome)
        is_late = outcome.success and outcome.leaves_time(self._now) and not self.is_over
        endless = {role for group in self.gang.groups if group.is_endless for role in group.roles}
        active = going(self._observed.pods)
        stopped = [pod for pod in active if not is_late or pod.role in endless or pod.failures]
        planned = self._planned(stop=stopped, wake_at=outcome.until if is_late else None)
        return replace(planned, started_at=self._observed.started_at)

    def _planned(self, stop: Sequence[PodRecord] = (), waiting: str = "", wake_at: datetime | None = None) -> Plan:
        """Return a plan that starts nothing."""
        is_suspended = self.gang.suspend and self.state.outcome is None
        return Plan(
            self._report(self),
            stop=tuple(pod.name for pod in stop),
            started_at=self.started_at,
            wake_at=wake_at,
            waiting="its job is suspended" if is_suspended else waiting,
            memory=self.state.memory(),
        )

    @property
    def retrying(self) -> str:
        """How the last try failed and which one is made now; empty if none has failed."""
        if self._limits is None:
            held = (true_condition(conditions_of(j.last.status), JobCondition.RETRYING) for j in self.jobs.values())
            return next((str(found["message"]) for found in held if found), self.state.failure)
        if (pod := self._last_restarted) is None:
            return self.state.failure
        limit = self._limits.backoff_limit
        if limit is None:
            tries, most = self._failures_in_a_row()[0], UNLIMITED_FAILURES
        else:
            tries, most = sum(p.retries for p in going(self._pods)) + len(self._replaced), max(limit, 1)
        return f"{failure_cause(_explained(pod))}; try {min(tries + 1, most)} of {most}"


def _job_failure(reason: str, role: str, end: Mapping[str, Any], remark: str = "") -> JobOutcome:
    text = f"job {role} failed ({end.get('reason', '')}): {end.get('message', '')}"
    return JobOutcome(success=False, reason=reason, message=with_remark(text, remark) if remark else text)


def _explained(pod: PodRecord) -> str:
    return with_last_output(pod.message, pod.last_output)
