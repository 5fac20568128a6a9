"""The plan of a Job. Pure: the job, its pods and the time in; pods to start and stop and the true status out.

The rules are those of the Kubernetes Job controller, evaluated in its order: an outcome that was decided before, then
podFailurePolicy, backoffLimit, deadline, limits per index, successPolicy, completions. Two outcomes are ours and come
before them, because no retry could change them: the trial was stopped early (Complete, `EarlyStopped`), and a pod that
can never start on this machine, for want of its command for example (Failed, `PodCannotStart`).

An outcome is noted as SuccessCriteriaMet or FailureTarget while pods still end, and becomes Complete or Failed when the
last one has ended and its metrics are stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

from katib.model.failure_text import failure_cause, with_last_output
from katib.model.types import format_time
from katib.places.machine.jobs.batch.spec import UNLIMITED, JobSpec, PodCounts, format_indexes
from katib.places.machine.jobs.conditions import (
    Conditions,
    JobCondition,
    JobOutcome,
    Reason,
    conditions_of,
    deadline_of,
    earliest,
    early_outcome,
    failure,
    overdue,
    settled,
    success,
    true_condition,
    with_condition,
    with_message,
    with_suspension,
)
from katib.places.machine.jobs.kind import JobTime, ObservedJob, Plan, PodStart
from katib.places.machine.pods.records import Delays, PodRecord

FAILURES: Final = "failures"
"""Detail of a start, with a limit per index: how often its index has failed."""

IGNORED_FAILURES: Final = "ignoredFailures"
"""Detail of such a start: how often its index has failed without that counting."""

_SUSPENSION: Final = ("JobSuspended", "JobResumed")


class _Starts(NamedTuple):
    pods: tuple[PodStart, ...] = ()
    wake_at: datetime | None = None


def plan(observed: ObservedJob) -> Plan:
    spec, moment, started_at = JobSpec.of(observed.job), observed.moment, observed.started_at
    if done := settled(observed, spec):
        return done
    counts = PodCounts(spec, observed.pods)
    conditions = conditions_of(observed.job.get("status") or {})
    outcome = _decide(spec, counts, conditions, moment.steady, started_at)
    if outcome is not None:
        return _finish(outcome, counts, conditions, moment, started_at)
    if spec.suspend:
        conditions = with_suspension(conditions, "Job", _SUSPENSION, moment.wall, suspended=True)
        return replace(_plan(counts, counts.active, conditions, None), waiting="its job is suspended")
    return _go_on(spec, counts, conditions, moment, started_at or moment.steady, observed.delays)


# --- the ways a job can stand -----------------------------------------------------------------------------------------


def _finish(
    outcome: JobOutcome, counts: PodCounts, conditions: Conditions, moment: JobTime, started_at: datetime | None
) -> Plan:
    now = moment.wall
    conditions = tuple([c for c in conditions if c["type"] != JobCondition.RETRYING])  # what it said is over
    interim = JobCondition.SUCCESS_CRITERIA_MET if outcome.success else JobCondition.FAILURE_TARGET
    conditions = with_condition(conditions, interim, reason=outcome.reason, message=outcome.message, now=now)
    over = not counts.active and not counts.terminating
    if over:
        final = JobCondition.COMPLETE if outcome.success else JobCondition.FAILED
        conditions = with_condition(conditions, final, reason=outcome.reason, message=outcome.message, now=now)
    completed_at = now if over and outcome.success else None
    return _plan(counts, counts.active, conditions, started_at, completed_at)


def _go_on(
    spec: JobSpec, counts: PodCounts, conditions: Conditions, moment: JobTime, started_at: datetime, delays: Delays
) -> Plan:
    now = moment.wall
    conditions = with_suspension(conditions, "Job", _SUSPENSION, now, suspended=False)
    if text := _retry_message(spec, counts, delays):
        conditions = with_message(conditions, JobCondition.RETRYING, reason=Reason.POD_FAILED, message=text, now=now)
    if spec.completions is None:
        wanted = len(counts.active) if counts.succeeded else spec.parallelism
    else:
        left = spec.completions - counts.success_count - len(counts.failed_indexes)
        wanted = max(0, min(spec.parallelism, left))
    surplus, starts, waiting = counts.removed, _Starts(), ""
    if surplus or len(counts.active) > wanted:  # parallelism or completions were lowered: the newest pods end first
        others = [p for p in counts.active if p not in surplus]
        surplus = [*surplus, *reversed(others[wanted:])]
    else:
        starts = _starts(spec, counts, wanted, moment.steady, delays)
    if starts.wake_at is not None and counts.all_failures and not starts.pods:
        waiting = f"{counts.all_failures[-1].message}; the next try starts at {format_time(starts.wake_at)}"
    for pod in counts.active:
        waiting = waiting or pod.waiting
    return replace(
        _plan(counts, surplus, conditions, started_at),
        start=starts.pods,
        wake_at=earliest(starts.wake_at, deadline_of(spec.active_deadline_seconds, started_at)),
        waiting=waiting,
        restarts_log=bool(starts.pods) and counts.is_lost,
    )


def _retry_message(spec: JobSpec, counts: PodCounts, delays: Delays) -> str:
    """Return how the last try failed and when the next one begins; empty when nothing has failed yet."""
    if not counts.retried and not counts.failures:
        return ""
    tries = len(counts.failures) + sum(p.retries for p in counts.retried)
    failed = counts.retried[-1] if counts.retried else counts.failures[-1]
    cause = failure_cause(with_last_output(failed.message, failed.last_output))
    limit = "" if spec.backoff_limit >= UNLIMITED else f" of {spec.backoff_limit + 1}"
    again = None if counts.active else counts.retry_at(delays)
    when = f" begins at {format_time(again)}" if again else ""
    return f"{cause}; try {tries + 1}{limit}{when}"


# --- the outcome ------------------------------------------------------------------------------------------------------


def _decide(
    spec: JobSpec, counts: PodCounts, conditions: Conditions, now: datetime, started_at: datetime | None
) -> JobOutcome | None:
    for type_ in (JobCondition.SUCCESS_CRITERIA_MET, JobCondition.FAILURE_TARGET):
        if noted := true_condition(conditions, type_):
            return JobOutcome(type_ is JobCondition.SUCCESS_CRITERIA_MET, noted["reason"], noted["message"])
    has_failures = bool(counts.all_failures or counts.retried)
    outcome = (
        early_outcome(counts.pods)
        or (_failure_policy(counts) or _backoff_limit(spec, counts) if has_failures else None)
        or (None if spec.suspend else overdue(spec.active_deadline_seconds, started_at, now))
        or (_index_limits(spec, counts) if has_failures else None)
    )
    if outcome is not None:
        return outcome
    for position, rule in enumerate(spec.success_rules):
        if counts.succeeded and rule.is_met(counts.succeeded_indexes):
            message = f"rule {position} of successPolicy is met"
            return JobOutcome(success=True, reason=Reason.SUCCESS_POLICY, message=message)
    if spec.completions is None:
        done = bool(counts.succeeded) and not counts.active and not counts.terminating
    else:
        done = counts.success_count >= spec.completions
    message = "the wanted number of pods succeeded"
    return success(Reason.COMPLETIONS_REACHED, message, counts.succeeded) if done else None


def _failure_policy(counts: PodCounts) -> JobOutcome | None:
    for match in counts.matched_rules:
        if match.rule.action == "FailJob":
            return failure(
                Reason.POD_FAILURE_POLICY,
                f'container "{match.exit.container}" of pod {match.pod.title} {match.exit.text}, '
                f"which rule {match.position} of podFailurePolicy answers with FailJob",
                match.pod,
            )
    return None


def _backoff_limit(spec: JobSpec, counts: PodCounts) -> JobOutcome | None:
    restarts = sum(p.restarts for p in counts.retried)
    if spec.restart_policy == "OnFailure" and restarts and restarts >= spec.backoff_limit:
        pod = next(p for p in reversed(counts.retried) if p.restarts)
    elif len(counts.failures) > spec.backoff_limit:
        pod = counts.failures[-1]
    else:
        return None
    message = f"{pod.message}; the back-off limit of {spec.backoff_limit} is reached"
    return failure(Reason.BACKOFF_LIMIT_EXCEEDED, message, pod)


def _index_limits(spec: JobSpec, counts: PodCounts) -> JobOutcome | None:
    failed = counts.failed_indexes
    if not failed:
        return None
    last = next((p for p in reversed(counts.failures) if p.index in failed), None)
    how = last.message if last is not None else ""
    names = format_indexes(failed)
    if spec.max_failed_indexes is not None and len(failed) > spec.max_failed_indexes:
        message = f"indexes {names} failed, more than maxFailedIndexes {spec.max_failed_indexes}; {how}"
        return failure(Reason.MAX_FAILED_INDEXES_EXCEEDED, message, last)
    if len(failed) + counts.success_count >= (spec.completions or 0):
        return failure(Reason.FAILED_INDEXES, f"indexes {names} failed; {how}", last)
    return None


# --- which pods -------------------------------------------------------------------------------------------------------


def _starts(spec: JobSpec, counts: PodCounts, wanted: int, now: datetime, delays: Delays) -> _Starts:
    occupied = (*counts.active, *counts.terminating) if spec.replace_only_failed else counts.active
    room = wanted - len(occupied)
    if room <= 0:
        return _Starts()
    if spec.backoff_limit_per_index is None and (retry_at := counts.retry_at(delays)) and retry_at > now:
        return _Starts(wake_at=retry_at)
    if not spec.indexed:
        return _Starts((PodStart(),) * room)
    taken = {p.index for p in occupied} | counts.succeeded_indexes | counts.failed_indexes
    free = [index for index in range(spec.completions or 0) if index not in taken]
    if spec.backoff_limit_per_index is None:
        return _Starts(tuple(map(PodStart, free[:room])))
    # Each index waits for its own back-off; the others go ahead.
    moments = {index: counts.retry_at(delays, index) for index in free}
    ready = [index for index, moment in moments.items() if moment is None or moment <= now][:room]
    later = [moment for moment in moments.values() if moment is not None and moment > now]
    failed, in_all = counts.failures_by_index, Counter(p.index for p in counts.all_failures)
    starts = (PodStart(i, details={FAILURES: failed[i], IGNORED_FAILURES: in_all[i] - failed[i]}) for i in ready)
    return _Starts(tuple(starts), min(later, default=None) if len(ready) < room else None)


# --- the status -------------------------------------------------------------------------------------------------------


def _plan(
    counts: PodCounts,
    stopped: Sequence[PodRecord],
    conditions: Conditions,
    started_at: datetime | None,
    completed_at: datetime | None = None,
) -> Plan:
    """Return the plan that ends some pods, with the status as it is once they were asked to; it has no zeros."""
    names = tuple([p.name for p in stopped])
    if names:
        pods = [replace(p, stopping=True) if p.name in names else p for p in counts.pods]
        counts = PodCounts(counts.spec, pods)
    fields = {
        "conditions": list(map(dict, conditions)),
        "startTime": format_time(started_at) if started_at else None,
        "completionTime": format_time(completed_at) if completed_at else None,
        "active": len(counts.active),
        "ready": counts.ready_count,
        "terminating": len(counts.terminating),
        "succeeded": counts.success_count,
        "failed": len(counts.failures),
        "completedIndexes": format_indexes(counts.succeeded_indexes) if counts.spec.indexed else "",
        "failedIndexes": format_indexes(counts.failed_indexes) if counts.all_failures else "",
    }
    status = {name: value for name, value in fields.items() if value}
    return Plan(status, stop=names, started_at=started_at)
