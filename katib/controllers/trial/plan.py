"""What to do about a trial, decided from what is observed. Pure: no I/O, no clock.

Theory of operation. A trial's job is created once and judged by the two conditions of the template, failure first. A
job that succeeded is not the end yet: the observation has to be read. It is there (Succeeded, or EarlyStopped when the
collector ended the job), or the collector says why it is not (MetricsUnavailable), or it is waited for until the
metrics timeout. A trial that has ended keeps its end; its job is removed unless the template says to retain it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from katib.api.conditions import Conditions, find_condition, is_true, set_condition, without_condition
from katib.api.types import CollectorKind, ConditionStatus, Observation, Trial, TrialCondition, TrialStatus
from katib.controllers.objectives import is_available
from katib.controllers.trial_states import ACTIVE, state_of

EARLY_STOPPED_REASON = "EarlyStopped"
"""Reason of a job's success condition when the collector's rules ended it."""


RETRYING_REASON = "TrialRetrying"
"""Reason of Running once a try of the job has failed; the message says how, and when the next one begins."""

WAITING_REASON = "TrialWaiting"
"""Reason of Running while the job is there but no pod of it gets to run; the message says why."""


@dataclass(frozen=True, slots=True)
class Judgment:
    """The verdict of a job's conditions."""

    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class JobView:
    """What matters of a job.

    Attributes:
        failed: Set when the failure condition holds.
        succeeded: Set when the success condition holds.
        ended_at: When it was first seen to have ended; None while it runs.
        metrics_report: Why the collector found no objective metric; empty when it found it or has not said.
        retrying: How its last try failed and when the next one begins; empty when none has failed.
        waiting: Why no pod of it gets to run; empty when one runs, or may run soon.
        last_failure: How a container of it ended that failed last.
    """

    failed: Judgment | None = None
    succeeded: Judgment | None = None
    ended_at: datetime | None = None
    metrics_report: str = ""
    retrying: str = ""
    waiting: str = ""
    last_failure: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """The world as the controller sees it.

    Attributes:
        job: None when there is no job object.
        observation: What the log says; read only once the job has ended, None before and when the log is empty.
    """

    trial: Trial
    job: JobView | None
    observation: Observation | None = None
    metrics_timeout_seconds: float = 60.0
    explanation_seconds: float = 0.0
    now: datetime = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class TrialEvent:
    """A moment worth telling."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """What to write, in this order.

    Attributes:
        create_job: Whether the job has to be created.
        delete_job: Whether the job has to go, because the trial is over.
        status: The new status; equal to the old one when nothing changed.
        event: What to tell.
        again_after_seconds: When to look again without being woken; None when an event will wake us.
    """

    status: TrialStatus
    create_job: bool = False
    delete_job: bool = False
    event: TrialEvent | None = None
    again_after_seconds: float | None = None


def plan_trial(seen: Observed) -> TrialPlan:
    """Return the next step for a trial that is not being deleted."""
    status = _with_start(seen.trial.status, seen.now)
    if state_of(seen.trial) not in ACTIVE:
        return _completed(seen, status)
    if seen.job is None:
        return TrialPlan(
            status=_running(status, seen.now), create_job=True, event=_told(seen, "JobCreated", "been created")
        )
    if seen.job.failed is not None:
        return _failed(seen, status, seen.job, seen.job.failed)
    if seen.job.succeeded is not None:
        return _succeeded(seen, status, seen.job, seen.job.succeeded)
    return _under_way(seen, status, seen.job)


def needs_observation(trial: Trial, job: JobView | None) -> bool:
    """Tell whether the log has to be read: the job ended, and the trial does not know its observation yet."""
    ended = job is not None and job.ended_at is not None
    return ended and trial.status.observation is None


# --- steps ------------------------------------------------------------------------------------------------------------


def _completed(seen: Observed, status: TrialStatus) -> TrialPlan:
    """Keep the end; take an observation that came late, as for a trial that a service declared early stopped."""
    if seen.observation is not None and status.observation is None:
        status = status.model_copy(update={"observation": seen.observation})
    if status.completion_time is None:
        status = status.model_copy(update={"completion_time": seen.now})
    waits = (
        is_true(status.conditions, TrialCondition.EARLY_STOPPED)
        and status.observation is None
        and seen.job is not None
        and seen.job.ended_at is None
    )
    # A job that still runs for a killed trial has to go whatever the template says: `retain` keeps finished jobs.
    unwanted = not seen.trial.spec.retain_run or is_true(status.conditions, TrialCondition.KILLED)
    return TrialPlan(status=status, delete_job=seen.job is not None and unwanted and not waits)


def _under_way(seen: Observed, status: TrialStatus, job: JobView) -> TrialPlan:
    if job.retrying:
        return _with_news(seen, status, RETRYING_REASON, "JobRetrying", job.retrying)
    if job.waiting:
        return _with_news(seen, status, WAITING_REASON, "JobWaiting", job.waiting)
    return TrialPlan(status=_running(status, seen.now))


def _with_news(seen: Observed, status: TrialStatus, reason: str, event_reason: str, news: str) -> TrialPlan:
    """Say in the trial's Running condition what its job goes through."""
    old = find_condition(status.conditions, TrialCondition.RUNNING)
    message = f"Trial is running: {news}"
    if old is not None and old.message == message:
        return TrialPlan(status=status)
    others = without_condition(status.conditions, TrialCondition.RUNNING)
    conditions = _set(others, TrialCondition.RUNNING, reason, message, seen.now)
    event = TrialEvent(event_reason, f"Job {seen.trial.name}: {news}", warning=True)
    return TrialPlan(status=status.model_copy(update={"conditions": conditions}), event=event)


def held_up(status: TrialStatus, reason: str, cause: str, now: datetime) -> TrialStatus:
    """Return the status of a trial whose job cannot be created or read for now."""
    status = _with_start(status, now)
    old = find_condition(status.conditions, TrialCondition.RUNNING)
    message = f"Trial cannot run: {cause}"
    if old is not None and (old.reason, old.message) == (reason, message):
        return status
    conditions = set_condition(
        without_condition(status.conditions, TrialCondition.RUNNING),
        TrialCondition.RUNNING,
        ConditionStatus.FALSE,
        reason=reason,
        message=message,
        now=now,
    )
    return status.model_copy(update={"conditions": conditions})


def refused(status: TrialStatus, cause: str, now: datetime) -> TrialStatus:
    """Return the status of a trial whose job cannot be created at all: the same job would be refused for ever."""
    status = _with_start(status, now)
    message = f"Trial has failed: its job was refused: {cause}"
    conditions = _set(_not_running(status.conditions, now), TrialCondition.FAILED, "TrialFailed", message, now)
    return status.model_copy(update={"conditions": conditions, "completion_time": now})


def _failed(seen: Observed, status: TrialStatus, job: JobView, judged: Judgment) -> TrialPlan:
    if job.last_failure:
        judged = Judgment(judged.reason, ". ".join(filter(None, (judged.message, job.last_failure))))
    status = _ended(status, TrialCondition.FAILED, "TrialFailed", _explained("Trial has failed", judged), seen)
    told = f"Job {seen.trial.name} has failed" + (
        f". {judged.message} {judged.reason}".rstrip() if judged.message else ""
    )
    return TrialPlan(status=status, delete_job=_disposable(seen), event=TrialEvent("JobFailed", told))


def _succeeded(seen: Observed, status: TrialStatus, job: JobView, judged: Judgment) -> TrialPlan:
    if judged.reason == EARLY_STOPPED_REASON:
        message = f"Trial is early stopped: {judged.message}" if judged.message else "Trial is early stopped"
        status = _ended(status, TrialCondition.EARLY_STOPPED, "TrialEarlyStopped", message, seen)
        return TrialPlan(
            status=status, delete_job=_disposable(seen), event=_told(seen, "TrialEarlyStopped", "been stopped early")
        )
    if is_available(seen.trial.spec.objective, seen.observation):
        status = _ended(
            status, TrialCondition.SUCCEEDED, "TrialSucceeded", _explained("Trial has succeeded", judged), seen
        )
        return TrialPlan(status=status, delete_job=_disposable(seen), event=_told(seen, "JobSucceeded", "succeeded"))
    return _without_metrics(seen, status, job)


def _without_metrics(seen: Observed, status: TrialStatus, job: JobView) -> TrialPlan:
    cause, left = _why_no_metrics(seen, job)
    if left > 0:
        return TrialPlan(status=_running(status, seen.now), again_after_seconds=left)
    status = _ended(
        status,
        TrialCondition.METRICS_UNAVAILABLE,
        "MetricsUnavailable",
        f"Metrics are not available: {cause}",
        seen,
    )
    event = TrialEvent(
        "MetricsUnavailable", f"Metrics are not available for Job {seen.trial.name}: {cause}", warning=True
    )
    return TrialPlan(status=status, delete_job=_disposable(seen), event=event)


def _why_no_metrics(seen: Observed, job: JobView) -> tuple[str, float]:
    """Return the cause, and how many seconds metrics may still come."""
    if job.metrics_report:
        return job.metrics_report, 0.0
    objective = seen.trial.spec.objective
    name = objective.objective_metric_name if objective else ""
    collector = seen.trial.spec.metrics_collector.collector
    pushed = collector is not None and collector.kind == CollectorKind.PUSH
    waited = seen.now - (job.ended_at or seen.now)
    if seen.observation is not None:
        # The collector has reported; what it has to say of it may still be on its way.
        left = timedelta(seconds=0.0 if pushed else seen.explanation_seconds) - waited
        return f'"{name}" was reported, but never with a value', left.total_seconds()
    if pushed:
        return f'the job ended without reporting "{name}"; call report_metrics in the training code', 0.0
    left = timedelta(seconds=seen.metrics_timeout_seconds) - waited
    cause = f'nothing reported "{name}" within {seen.metrics_timeout_seconds:g} s of the end of the job'
    return cause, left.total_seconds()


# --- status -----------------------------------------------------------------------------------------------------------


def _with_start(status: TrialStatus, now: datetime) -> TrialStatus:
    if find_condition(status.conditions, TrialCondition.CREATED) is not None:
        return status
    conditions = _set(status.conditions, TrialCondition.CREATED, "TrialCreated", "Trial is created", now)
    return status.model_copy(update={"conditions": conditions, "start_time": now})


def _running(status: TrialStatus, now: datetime) -> TrialStatus:
    conditions = _set(status.conditions, TrialCondition.RUNNING, "TrialRunning", "Trial is running", now)
    return status.model_copy(update={"conditions": conditions})


def _ended(status: TrialStatus, type_: TrialCondition, reason: str, message: str, seen: Observed) -> TrialStatus:
    return status.model_copy(
        update={
            "conditions": _set(_not_running(status.conditions, seen.now), type_, reason, message, seen.now),
            "observation": status.observation or seen.observation,
            "completion_time": seen.now,
        }
    )


def killed(status: TrialStatus, message: str, now: datetime) -> TrialStatus:
    """Return the status of a trial that is stopped because nobody needs it any more."""
    conditions = _set(_not_running(status.conditions, now), TrialCondition.KILLED, "TrialKilled", message, now)
    return status.model_copy(update={"conditions": conditions, "completion_time": now})


def _not_running(conditions: Conditions, now: datetime) -> Conditions:
    old = find_condition(conditions, TrialCondition.RUNNING)
    if old is None:
        return conditions
    return set_condition(conditions, old.type, ConditionStatus.FALSE, reason=old.reason, message=old.message, now=now)


def _set(conditions: Conditions, type_: str, reason: str, message: str, now: datetime) -> Conditions:
    return set_condition(conditions, type_, ConditionStatus.TRUE, reason=reason, message=message, now=now)


def _explained(sentence: str, judged: Judgment) -> str:
    parts = [sentence]
    if judged.reason:
        parts.append(f"Job reason: {judged.reason}")
    if judged.message:
        parts.append(f"Job message: {judged.message}")
    return ". ".join(parts)


def _told(seen: Observed, reason: str, what: str) -> TrialEvent:
    return TrialEvent(reason, f"Job {seen.trial.name} has {what}")


def _disposable(seen: Observed) -> bool:
    return not seen.trial.spec.retain_run
