"""What to do about a job now. Pure: the job, its pods and the time in; pods to start and stop and the true status out.

The rules are those of the Kubernetes Job controller, evaluated in its order: an outcome that was decided before, then
podFailurePolicy, backoffLimit, deadline, limits per index, successPolicy, completions. Two outcomes are ours and come
before them, because no retry could change them: the trial was stopped early (Complete, `EarlyStopped`), and a pod that
can never start on this machine, for want of its command for example (Failed, `PodCannotStart`).

An outcome is noted as SuccessCriteriaMet or FailureTarget while pods still end, and becomes Complete or Failed when the
last one has ended and its metrics are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from katib.api.types import format_time
from katib.runtime.objects import Object
from katib.workloads.local.delays import Delays
from katib.workloads.local.indexes import format_indexes
from katib.workloads.local.job_conditions import (
    Conditions,
    JobCondition,
    Reason,
    conditions_of,
    end_of,
    parse_time,
    true_condition,
    with_condition,
    with_news,
)
from katib.workloads.local.job_spec import UNLIMITED, JobSpec
from katib.workloads.local.records import Phase, PodRecord
from katib.workloads.local.tally import Tally


@dataclass(frozen=True, slots=True)
class Plan:
    """What follows.

    Attributes:
        start: Pods to start, by completion index; None stands for a pod without one.
        stop: Names of pods to end.
        status: The status as it should be; while pods are only about to start, as it is without them.
        started_at: From when the deadline counts, exact; None while the job is suspended.
        wake_at: When to plan again even if nothing happens.
        waiting: Why nothing more is started, for people.
        delete: The job object has outlived its time.
    """

    status: dict[str, Any]
    start: tuple[int | None, ...] = ()
    stop: tuple[str, ...] = ()
    started_at: datetime | None = None
    wake_at: datetime | None = None
    waiting: str = ""
    delete: bool = False


class _Outcome(NamedTuple):
    success: bool
    reason: str
    message: str


class _Starts(NamedTuple):
    indexes: tuple[int | None, ...] = ()
    wake_at: datetime | None = None


def plan(job: Object, pods: Sequence[PodRecord], now: datetime, *, started_at: datetime | None, delays: Delays) -> Plan:
    """Decide about a job.

    Args:
        job: The object with the newest status we know.
        pods: All pods it ever had, oldest first.
        now: The time.
        started_at: As the last plan returned it.
        delays: How long failures make wait.
    """
    spec, status = JobSpec.of(job), dict(job.get("status") or {})
    if spec.managed_elsewhere:
        return Plan(status)
    if end := end_of(status):
        return _after_the_end(spec, status, end, now)
    tally = Tally(spec, tuple(pods))
    conditions = conditions_of(status)
    outcome = _noted_outcome(conditions) or _decide(spec, tally, now, started_at)
    if outcome is not None:
        return _finish(outcome, tally, conditions, now, started_at)
    if spec.suspend:
        return _suspend(tally, conditions, now)
    return _go_on(spec, tally, conditions, now, started_at or now, delays)


# --- the ways a job can stand -----------------------------------------------------------------------------------------


def _after_the_end(spec: JobSpec, status: dict[str, Any], end: dict[str, Any], now: datetime) -> Plan:
    if spec.ttl_seconds_after_finished is None:
        return Plan(status)
    due = parse_time(end["lastTransitionTime"]) + timedelta(seconds=spec.ttl_seconds_after_finished)
    return Plan(status, delete=True) if now >= due else Plan(status, wake_at=due)


def _finish(
    outcome: _Outcome, tally: Tally, conditions: Conditions, now: datetime, started_at: datetime | None
) -> Plan:
    conditions = tuple(c for c in conditions if c["type"] != JobCondition.RETRYING)  # what it said is over
    interim = JobCondition.SUCCESS_CRITERIA_MET if outcome.success else JobCondition.FAILURE_TARGET
    conditions = with_condition(conditions, interim, reason=outcome.reason, message=outcome.message, now=now)
    over = not tally.active and not tally.terminating
    if over:
        final = JobCondition.COMPLETE if outcome.success else JobCondition.FAILED
        conditions = with_condition(conditions, final, reason=outcome.reason, message=outcome.message, now=now)
    stopped = _stopped(tally, tally.active)
    status = _status(stopped, conditions, started_at, completed_at=now if over and outcome.success else None)
    return Plan(status, stop=tuple(p.name for p in tally.active), started_at=started_at)


def _suspend(tally: Tally, conditions: Conditions, now: datetime) -> Plan:
    conditions = with_condition(
        conditions, JobCondition.SUSPENDED, reason="JobSuspended", message="Job suspended", now=now
    )
    status = _status(_stopped(tally, tally.active), conditions, None)
    return Plan(status, stop=tuple(p.name for p in tally.active), waiting="the job is suspended")


def _go_on(
    spec: JobSpec, tally: Tally, conditions: Conditions, now: datetime, started_at: datetime, delays: Delays
) -> Plan:
    if true_condition(conditions, JobCondition.SUSPENDED):
        conditions = with_condition(
            conditions, JobCondition.SUSPENDED, holds=False, reason="JobResumed", message="Job resumed", now=now
        )
    if news := _retry_news(spec, tally, delays):
        conditions = with_news(conditions, JobCondition.RETRYING, reason=Reason.POD_FAILED, message=news, now=now)
    surplus = _surplus(spec, tally)
    starts = _Starts() if surplus else _starts(spec, tally, now, delays)
    return Plan(
        _status(_stopped(tally, surplus), conditions, started_at),
        start=starts.indexes,
        stop=tuple(p.name for p in surplus),
        started_at=started_at,
        wake_at=_earliest(starts.wake_at, _deadline(spec, started_at)),
        waiting=_waiting(tally, starts),
    )


def _retry_news(spec: JobSpec, tally: Tally, delays: Delays) -> str:
    """Return how the last try failed and when the next one begins; empty when nothing has failed yet."""
    tries = len(tally.failures) + tally.restarts
    if not tries:
        return ""
    restarted = [p.message for p in tally.active if p.restarts]
    cause = restarted[-1] if restarted else tally.failures[-1].message
    limit = "" if spec.backoff_limit >= UNLIMITED else f" of {spec.backoff_limit + 1}"
    again = None if restarted or tally.active else tally.retry_at(delays)
    when = f" begins at {format_time(again)}" if again else ""
    return f"{cause}; try {tries + 1}{limit}{when}"


# --- the outcome ------------------------------------------------------------------------------------------------------


def _noted_outcome(conditions: Conditions) -> _Outcome | None:
    for type_ in (JobCondition.SUCCESS_CRITERIA_MET, JobCondition.FAILURE_TARGET):
        if noted := true_condition(conditions, type_):
            return _Outcome(type_ is JobCondition.SUCCESS_CRITERIA_MET, noted["reason"], noted["message"])
    return None


def _decide(spec: JobSpec, tally: Tally, now: datetime, started_at: datetime | None) -> _Outcome | None:
    return (
        _early_stop(tally)
        or _unstartable(tally)
        or _failure_policy(tally)
        or _backoff_limit(spec, tally)
        or _deadline_passed(spec, now, started_at)
        or _index_limits(spec, tally)
        or _success_policy(spec, tally)
        or _completions(spec, tally)
    )


def _early_stop(tally: Tally) -> _Outcome | None:
    verdict = next((p.verdict for p in tally.pods if p.verdict), "")
    return _Outcome(success=True, reason=Reason.EARLY_STOPPED, message=verdict) if verdict else None


def _unstartable(tally: Tally) -> _Outcome | None:
    cause = next((p.cannot_start for p in tally.pods if p.cannot_start), "")
    return _failure(Reason.POD_CANNOT_START, cause) if cause else None


def _failure_policy(tally: Tally) -> _Outcome | None:
    for match in tally.matched_rules:
        if match.rule.action == "FailJob":
            return _failure(
                Reason.POD_FAILURE_POLICY,
                f'container "{match.exit.container}" of pod {match.pod.name} {match.exit.text}, '
                f"which rule {match.position} of podFailurePolicy answers with FailJob",
            )
    return None


def _backoff_limit(spec: JobSpec, tally: Tally) -> _Outcome | None:
    restarts = tally.restarts
    if spec.restart_policy == "OnFailure" and restarts and restarts >= spec.backoff_limit:
        message = next((p.message for p in reversed(tally.active) if p.restarts), "")
    elif len(tally.failures) > spec.backoff_limit:
        message = tally.failures[-1].message
    else:
        return None
    return _failure(Reason.BACKOFF_LIMIT_EXCEEDED, f"{message}; the back-off limit of {spec.backoff_limit} is reached")


def _deadline_passed(spec: JobSpec, now: datetime, started_at: datetime | None) -> _Outcome | None:
    deadline = _deadline(spec, started_at)
    if deadline is None or now < deadline or spec.suspend:
        return None
    message = f"the job was active for longer than its deadline of {spec.active_deadline_seconds} s"
    return _failure(Reason.DEADLINE_EXCEEDED, message)


def _index_limits(spec: JobSpec, tally: Tally) -> _Outcome | None:
    failed = tally.failed_indexes
    if not failed:
        return None
    last = next((p.message for p in reversed(tally.failures) if p.index in failed), "")
    names = format_indexes(failed)
    if spec.max_failed_indexes is not None and len(failed) > spec.max_failed_indexes:
        message = f"indexes {names} failed, more than maxFailedIndexes {spec.max_failed_indexes}; {last}"
        return _failure(Reason.MAX_FAILED_INDEXES_EXCEEDED, message)
    if len(failed) + tally.success_count >= (spec.completions or 0):
        return _failure(Reason.FAILED_INDEXES, f"indexes {names} failed; {last}")
    return None


def _success_policy(spec: JobSpec, tally: Tally) -> _Outcome | None:
    for position, rule in enumerate(spec.success_rules):
        if tally.succeeded and rule.is_met(tally.succeeded_indexes):
            message = f"rule {position} of successPolicy is met"
            return _Outcome(success=True, reason=Reason.SUCCESS_POLICY, message=message)
    return None


def _completions(spec: JobSpec, tally: Tally) -> _Outcome | None:
    if spec.completions is None:
        done = bool(tally.succeeded) and not tally.active and not tally.terminating
    else:
        done = tally.success_count >= spec.completions
    if not done:
        return None
    remarks = [p.message for p in tally.succeeded if p.message]  # such as a log that was cut short by a full disk
    message = "; ".join(["the wanted number of pods succeeded", *remarks])
    return _Outcome(success=True, reason=Reason.COMPLETIONS_REACHED, message=message)


def _failure(reason: Reason, message: str) -> _Outcome:
    return _Outcome(success=False, reason=reason, message=message)


# --- which pods -------------------------------------------------------------------------------------------------------


def _wanted(spec: JobSpec, tally: Tally) -> int:
    """Return how many pods should be active."""
    if spec.completions is None:
        return len(tally.active) if tally.succeeded else spec.parallelism
    open_ = spec.completions - tally.success_count - len(tally.failed_indexes)
    return max(0, min(spec.parallelism, open_))


def _surplus(spec: JobSpec, tally: Tally) -> tuple[PodRecord, ...]:
    """Return active pods beyond the wanted number, newest first; parallelism was lowered."""
    count = len(tally.active) - _wanted(spec, tally)
    return tuple(reversed(tally.active))[:count] if count > 0 else ()


def _starts(spec: JobSpec, tally: Tally, now: datetime, delays: Delays) -> _Starts:
    occupied = (*tally.active, *tally.terminating) if spec.replace_only_failed else tally.active
    room = _wanted(spec, tally) - len(occupied)
    if room <= 0:
        return _Starts()
    if spec.backoff_limit_per_index is None and (retry_at := tally.retry_at(delays)) and retry_at > now:
        return _Starts(wake_at=retry_at)
    if not spec.indexed:
        return _Starts((None,) * room)
    taken = {p.index for p in occupied} | tally.succeeded_indexes | tally.failed_indexes
    free = [index for index in range(spec.completions or 0) if index not in taken]
    if spec.backoff_limit_per_index is None:
        return _Starts(tuple(free[:room]))
    return _starts_by_index(tally, free, room, now, delays)


def _starts_by_index(tally: Tally, free: list[int], room: int, now: datetime, delays: Delays) -> _Starts:
    """Each index waits for its own back-off; the others go ahead."""
    moments = {index: tally.retry_at(delays, index) for index in free}
    ready = [index for index, moment in moments.items() if moment is None or moment <= now]
    later = [moment for moment in moments.values() if moment is not None and moment > now]
    return _Starts(tuple(ready[:room]), min(later, default=None) if len(ready) < room else None)


def _deadline(spec: JobSpec, started_at: datetime | None) -> datetime | None:
    if spec.active_deadline_seconds is None or started_at is None:
        return None
    return started_at + timedelta(seconds=spec.active_deadline_seconds)


def _earliest(*moments: datetime | None) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)


def _waiting(tally: Tally, starts: _Starts) -> str:
    if starts.wake_at is not None and tally.all_failures and not starts.indexes:
        return f"{tally.all_failures[-1].message}; the next try starts at {format_time(starts.wake_at)}"
    return next((p.waiting for p in tally.active if p.waiting), "")


# --- the status -------------------------------------------------------------------------------------------------------


def _stopped(tally: Tally, pods: Sequence[PodRecord]) -> Tally:
    """Return the tally as it is once these pods were told to end."""
    names = {p.name for p in pods}
    marked = (replace(p, stopping=True) if p.name in names else p for p in tally.pods)
    return Tally(tally.spec, tuple(marked)) if names else tally


def _status(
    tally: Tally, conditions: Conditions, started_at: datetime | None, completed_at: datetime | None = None
) -> dict[str, Any]:
    """Return the status; counts of zero are left out."""
    fields = {
        "conditions": [dict(c) for c in conditions],
        "startTime": format_time(started_at) if started_at else None,
        "completionTime": format_time(completed_at) if completed_at else None,
        "active": len(tally.active),
        "ready": sum(p.phase is Phase.RUNNING for p in tally.active),
        "terminating": len(tally.terminating),
        "succeeded": tally.success_count,
        "failed": len(tally.failures),
        "completedIndexes": format_indexes(tally.succeeded_indexes),
        "failedIndexes": format_indexes(tally.failed_indexes),
    }
    return {name: value for name, value in fields.items() if value}
