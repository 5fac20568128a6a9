"""Plan of a trial's next step from the observed state. Pure: no I/O, no clock.

Theory of operation. A trial's job is created once and judged by the two conditions of the template, failure first. A
job that succeeded is not the end yet: the observation has to be read. It is there (Succeeded, or EarlyStopped if the
collector ended the job), or the collector tells why it is not (MetricsUnavailable), or it is waited for until the
metrics timeout; if nothing is collected (collector None), the job's success is the trial's. A part of the readings is
not an observation: while a collector may still store some the trial waits, and if some are missing it is
MetricsUnavailable, whatever the others are. A trial that has ended keeps its end; its job is removed unless the
template retains it.

A trial runs while a program of its job does, which its condition Running shows. Before that it is Created only; the
cause of a wait, before or after the first run, is in the condition, which is False then. `runSeconds` holds the
measured run time up to the last wait, or the end. `startTime` moves on by the time that the trial did not run, so that
the time from there to now, or to the end, is about the same.

A verdict of the early stopping service is first stored in the status, then the job is deleted, even if the template
retains it. The trial is EarlyStopped once no program of the job runs any more: until then it keeps its place among the
running trials, for its programs keep their cores, and a collector may store a last reading. A job that has ended by
itself before it was deleted decides how the trial ends.

A trial whose pods are refused waits up to a limit, or not at all if they will be refused forever. A pod without a
collector is never part of a success: its job is restarted, and until then, or if that does not help, metrics are
missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from msgspec import structs

from katib.engine.controllers.ports import PodRefusal, PodUpdate
from katib.engine.controllers.settings import ControllerSettings
from katib.model.conditions import (
    find_condition,
    is_true,
    set_condition,
    whole_second,
    with_start,
    without_condition,
)
from katib.model.failure_text import TRIAL_HAS_FAILED, failure_cause
from katib.model.features.listed import CUTS
from katib.model.names import METRICS_INCOMPLETE, RETRYING_REASON
from katib.model.trials import ACTIVE, missing_objective, trial_state
from katib.model.types import (
    CollectorKind,
    Condition,
    ConditionStatus,
    Observation,
    Trial,
    TrialCondition,
    TrialStatus,
)

EARLY_STOPPED_REASON = "EarlyStopped"
"""Reason of a job's success condition when the collector's rules ended it."""

DEADLINE_REASON = "DeadlineExceeded"
"""Reason of a job's failure condition when it ran for too long."""

RUNNING_REASON = "TrialRunning"
"""Reason of Running while no cause is known that keeps the job from running."""

WAITING_REASON = "TrialWaiting"
"""Reason of Running while a pod of the existing job cannot run, or there is none; the message has the cause."""

SUSPENDED_REASON = "TrialSuspended"
"""Reason of Running, then False, while the job is suspended."""

_IS_RUNNING = "Trial is running"
_CANNOT_RUN = "Trial cannot run: "
"""Start of the message of Running if the job cannot be created or read; the cause follows."""

PODS_REFUSED_REASON = "TrialPodsRefused"
"""Reason of Failed if no pod of the job may be created; the message has the refusing party and the cause."""

STOPPING_REASON = "TrialStopping"
"""Reason of Running from the early stopping service's verdict until the job is gone."""

STOPPING_WORDS = "Trial is being stopped early: "
"""Start of that condition's message; the cause follows."""

UNCOLLECTED_REASON = "PodWithoutCollector"
"""Reason of MetricsUnavailable if it is not the program's fault: a pod of the job ran without a collector."""

UNMEASURED_REASON = "TrialSucceededUnmeasured"
"""Reason of Succeeded if nothing is collected; no other trial succeeds without an observation."""

JOB_EVENT_SECONDS = 2.0
"""How long to wait for the event of a new job; after that, the job is read, in case it has lost its label."""

_DRIFT_SECONDS = 2.0
"""Error of `startTime` that is tolerated: times of objects are whole seconds."""

_MOST_ROUNDED_SECONDS = 1.5
"""Maximum rounding error of the difference of two whole-second times."""

_LATE_SECONDS = 0.05
"""Minimum time to add to that of an ended trial, such as the grace period of a killed one."""

_REPAIR_SECONDS = 5.0
"""How often to check whether a job with such a pod runs again; its deletion enqueues the trial anyway."""


@dataclass(frozen=True, slots=True)
class Judgment:
    """Result of a job's condition."""

    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class JobView(PodUpdate):
    """State of a job and its pods.

    Attributes:
        runs: Whether any part of it runs, as far as known.
        failed: Set if the failure condition holds.
        succeeded: Set if the success condition holds.
        began_at: Its last start, from which its deadline counts; None if its kind does not record that.
        ended_at: When it was first seen ended; None while it runs.
        retrying: Failure of its last try and time of the next one; empty if none has failed.
        suspended: Whether it is suspended.
        is_going: Whether it was deleted, and its pods are terminating.
    """

    runs: bool = True
    failed: Judgment | None = None
    succeeded: Judgment | None = None
    began_at: datetime | None = None
    ended_at: datetime | None = None
    retrying: str = ""
    suspended: bool = False
    is_going: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """The observed state.

    Attributes:
        job: None if there is no job object.
        observation: The observation in the log; read only once the job has ended, None before and if the log is empty.
        log_refusal: Why the log refused reports of the trial.
        verdict: Why its early stopping service wants it stopped; empty while it may continue.
        is_ending: Whether programs of its job may still run though the job is deleted.
        run_seconds: Its measured run time; None if it ended before it was measured.
        is_announced: Whether the trial has no job yet and the event of a new one follows at once: one write then marks
            the trial as both Created and Running.
        may_lose_event: Whether that event is missing if the job has lost its label.
    """

    trial: Trial
    job: JobView | None
    observation: Observation | None = None
    log_refusal: str = ""
    verdict: str = ""
    is_ending: bool = False
    run_seconds: float | None = None
    is_announced: bool = False
    may_lose_event: bool = False
    settings: ControllerSettings = field(default_factory=ControllerSettings)
    now: datetime = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class TrialEvent:
    """An event to record."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """Writes to make, in this order.

    Attributes:
        create_job: Whether to create the job.
        delete_job: Whether to delete the job because the trial is over.
        status: The new status; equal to the old one if nothing changed.
        event: The event to record.
        again_after_seconds: When to reconcile again without an event; None if one will follow.
    """

    status: TrialStatus
    create_job: bool = False
    delete_job: bool = False
    event: TrialEvent | None = None
    again_after_seconds: float | None = None


runs = partial(is_true, type_=TrialCondition.RUNNING, reason=RUNNING_REASON)
_is_incomplete = partial(is_true, type_=TrialCondition.METRICS_UNAVAILABLE, reason=METRICS_INCOMPLETE)
"""Take conditions; return whether a trial runs, or ended with a part of its readings."""


def plan_trial(seen: Observed) -> TrialPlan:
    """Return the next step for a trial that is not being deleted."""
    plan = _next_step(seen)
    return replace(plan, status=with_run_time(plan.status, seen.run_seconds, seen.now))


def _next_step(seen: Observed) -> TrialPlan:
    status = seen.trial.status if seen.is_announced else with_start(seen.trial.status, "Trial", seen.now)
    if trial_state(seen.trial) not in ACTIVE:
        return _completed(seen, status)
    # The end of a job that is being deleted is not evidence: only one that ended before the deletion counts.
    has_ended = seen.job is not None and not seen.job.is_going and seen.job.ended_at is not None
    if not has_ended and is_stopping(seen.trial):
        return _stopping(seen, status)
    if seen.job is None:
        event = _job_event(seen, "JobCreated", "been created")
        again = JOB_EVENT_SECONDS if seen.is_announced and seen.may_lose_event else None
        return TrialPlan(status=status, create_job=True, event=event, again_after_seconds=again)
    if seen.job.failed is not None:
        return _failed(seen, status, seen.job, seen.job.failed)
    if seen.job.succeeded is not None:
        return _succeeded(seen, status, seen.job, seen.job.succeeded)
    return _begin_to_stop(seen, status) if seen.verdict else _under_way(seen, status, seen.job)


def needs_observation(trial: Trial, job: JobView | None) -> bool:
    """Return whether to read the log: the job has ended, and the trial has no observation yet."""
    if job is not None and job.ended_at is None:
        return False
    is_unknown = job is not None and trial.status.observation is None and not _is_incomplete(trial.status.conditions)
    return is_unknown or is_stopping(trial)


def takes_no_more_readings(status: TrialStatus, job: JobView | None) -> bool:
    """Return whether the log of a trial is complete: its final state and its readings are stored.

    A trial declared early stopped by a service may still run and report.
    """
    if status.completion_time is None or job is None:
        return status.completion_time is not None
    is_read = status.observation is not None or _is_incomplete(status.conditions)
    return job.ended_at is not None and not job.collecting and is_read


def had_job(trial: Trial) -> bool:
    """Return whether a job was created for a trial, according to its status."""
    is_created = False
    for condition in trial.status.conditions:
        if condition.type == TrialCondition.RUNNING and condition.message.startswith(_CANNOT_RUN):
            return False
        is_created = is_created or (condition.type == TrialCondition.CREATED and condition.status == "True")
    return is_created


def is_stopping(trial: Trial) -> bool:
    """Return whether a trial is being stopped early: its job is deleted, or about to be."""
    return is_true(trial.status.conditions, TrialCondition.RUNNING, STOPPING_REASON)


# --- steps ------------------------------------------------------------------------------------------------------------


def _completed(seen: Observed, status: TrialStatus) -> TrialPlan:
    """Keep the end; add a late observation, as for a trial declared early stopped by a service."""
    if seen.observation is not None and status.observation is None:
        status = structs.replace(status, observation=seen.observation)
    if status.completion_time is None:
        status = structs.replace(status, completion_time=whole_second(seen.now))
    waits = (
        is_true(status.conditions, TrialCondition.EARLY_STOPPED)
        and status.observation is None
        and seen.job is not None
        and seen.job.ended_at is None
    )
    # A killed trial's running job is deleted whatever the template: `retain` keeps finished jobs. So is one whose pods
    # were refused: they may be admitted later, and would run to no end.
    refused_pods = is_true(status.conditions, TrialCondition.FAILED, PODS_REFUSED_REASON)
    unwanted = not seen.trial.spec.retain_run or is_true(status.conditions, TrialCondition.KILLED) or refused_pods
    return TrialPlan(status=status, delete_job=seen.job is not None and unwanted and not waits)


def _begin_to_stop(seen: Observed, status: TrialStatus) -> TrialPlan:
    """Store the cause of stopping before ending anything, so that the next reconcile can continue."""
    message = f"{STOPPING_WORDS}{seen.verdict}"
    return TrialPlan(status=with_running(status, STOPPING_REASON, message, seen.now), delete_job=True)


def _stopping(seen: Observed, status: TrialStatus) -> TrialPlan:
    """Delete the job; once it is gone, end the trial with its observation."""
    if seen.job is not None:
        return TrialPlan(status=status, delete_job=True)
    if seen.is_ending:
        return TrialPlan(status=status)
    running = find_condition(status.conditions, TrialCondition.RUNNING)
    why = "" if running is None else running.message.removeprefix(STOPPING_WORDS)
    return _early_stopped(seen, _running(status, seen.now), why)


def _early_stopped(seen: Observed, status: TrialStatus, why: str) -> TrialPlan:
    message = f"Trial is early stopped: {why}" if why else "Trial is early stopped"
    event = _job_event(seen, "TrialEarlyStopped", "been stopped early")
    if why in CUTS and missing_objective(seen.trial.spec.objective, seen.observation) is not None:
        # It has no reading of the objective, which is no evidence about its parameters.
        return _end(seen, status, TrialCondition.KILLED, stopped_reason(why), f"Trial is stopped: {why}", event)
    return _end(seen, status, TrialCondition.EARLY_STOPPED, stopped_reason(why), message, event)


def stopped_reason(why: str) -> str:
    """Return the reason of EarlyStopped for this cause."""
    return CUTS[why].cut_reason if why in CUTS else "TrialEarlyStopped"


def _under_way(seen: Observed, status: TrialStatus, job: JobView) -> TrialPlan:
    if job.suspended:
        ending = "its job is suspended, and its programs have their time to end"
        news = ending if job.runs else job.queued or "its job is suspended"
        return _with_news(seen, status, SUSPENDED_REASON, news, runs=job.runs, warning=False)
    if job.refusal is not None:
        return _without_pods(seen, status, job.refusal)
    if job.retrying:
        return _with_news(seen, status, RETRYING_REASON, job.retrying, runs=job.runs)
    if job.waiting:
        return _with_news(seen, status, WAITING_REASON, job.waiting, runs=job.runs, warning=job.is_trouble)
    return TrialPlan(status=_running(status, seen.now, job.place) if job.runs else status)


def _without_pods(seen: Observed, status: TrialStatus, refusal: PodRefusal) -> TrialPlan:
    """Wait for pods that are refused now; end the trial if that takes too long or cannot help."""
    cause = f"no pod of its job can be created: {refusal.message}"
    patience = (
        seen.settings.passing_refusal_patience_seconds if refusal.is_passing else seen.settings.refusal_patience_seconds
    )
    left = (refusal.since + timedelta(seconds=patience) - seen.now).total_seconds()
    if left > 0 and not refusal.is_final:
        waiting = _with_news(seen, status, WAITING_REASON, cause, runs=False)
        return replace(waiting, again_after_seconds=left)
    event = TrialEvent("JobFailed", f"Job {seen.trial.name} has failed: {cause}", warning=True)
    message = f"Trial has failed: {cause}"
    plan = _end(seen, status, TrialCondition.FAILED, PODS_REFUSED_REASON, message, event)
    return replace(plan, delete_job=True)


def _with_news(
    seen: Observed, status: TrialStatus, reason: str, news: str, *, runs: bool, warning: bool = True
) -> TrialPlan:
    """Report the state of the job in the trial's Running condition."""
    waits = f"Trial {news}" if news.startswith("waits ") else f"Trial waits: {news}"
    new = with_running(status, reason, f"Trial is running: {news}" if runs else waits, seen.now, runs=runs)
    if new is status:
        return TrialPlan(status=status)
    event_reason = reason.replace("Trial", "Job", 1)
    return TrialPlan(status=new, event=TrialEvent(event_reason, f"Job {seen.trial.name}: {news}", warning=warning))


def held_up(status: TrialStatus, reason: str, cause: str, now: datetime) -> TrialStatus:
    """Return the status of a trial whose job cannot be created or read for now."""
    return with_running(with_start(status, "Trial", now), reason, f"{_CANNOT_RUN}{cause}", now, runs=False)


def refused(status: TrialStatus, cause: str, now: datetime) -> TrialStatus:
    """Return the status of a trial whose job is refused for good."""
    message = f"{TRIAL_HAS_FAILED}: its job was refused: {cause}"
    return ended(with_start(status, "Trial", now), TrialCondition.FAILED, "TrialFailed", message, now)


def _failed(seen: Observed, status: TrialStatus, job: JobView, judged: Judgment) -> TrialPlan:
    if job.lost and not job.last_failure:
        return _incomplete(seen, status, job.lost)
    cause = _cause(judged, job.last_failure)
    words = (f"{TRIAL_HAS_FAILED}: {cause}" if cause else TRIAL_HAS_FAILED) + _earlier_runs(seen, job, judged)
    message = ". ".join(filter(None, (words, _refusal(seen))))
    event = replace(_job_event(seen, "JobFailed", _failed_words(judged, job.last_failure)), warning=True)
    return _end(seen, status, TrialCondition.FAILED, "TrialFailed", message, event)


def _earlier_runs(seen: Observed, job: JobView, judged: Judgment) -> str:
    """Return the run time of a trial past its deadline before its job's last start: its duration includes that."""
    if judged.reason != DEADLINE_REASON or None in (job.began_at, seen.run_seconds):
        return ""
    counted = ((job.ended_at or seen.now) - (job.began_at or seen.now)).total_seconds()
    earlier = (seen.run_seconds or 0.0) - counted
    return f"; it had run for {earlier:.0f} s before it was started again" if earlier > _MOST_ROUNDED_SECONDS else ""


def _failed_words(judged: Judgment, last_failure: str) -> str:
    """Return a job's failure as the end of a sentence: the cause, then the job's own message."""
    causes = dict.fromkeys((_cause(judged, last_failure), failure_cause(judged.message)))
    told = "; ".join(cause.rstrip(".") for cause in causes if cause and cause != judged.reason)
    reason = f" ({judged.reason})" if judged.reason else ""
    return f"failed: {told}{reason}." if told else f"failed{reason}"


def _cause(judged: Judgment, last_failure: str) -> str:
    """Return the cause of a job's failure, for people; its own reason and message stay in its condition and its event.

    The program's exit explains a failure better than the job does, unless the job ended the program.
    """
    told_by_job = judged.message or judged.reason
    return failure_cause(told_by_job if judged.reason == DEADLINE_REASON else last_failure or told_by_job)


def _succeeded(seen: Observed, status: TrialStatus, job: JobView, judged: Judgment) -> TrialPlan:
    if judged.reason == EARLY_STOPPED_REASON:
        return _early_stopped(seen, status, judged.message)
    if job.uncollected is None and (job.collecting or job.incomplete):
        return _not_collected(seen, status, job)
    if job.uncollected is None and missing_objective(seen.trial.spec.objective, seen.observation) is None:
        reason, message = "TrialSucceeded", "Trial has succeeded"
    elif seen.trial.spec.metrics_collector.kind == CollectorKind.NONE:
        reason, message = UNMEASURED_REASON, "Trial has succeeded, without metrics: its collector is None"
    else:
        return _without_metrics(seen, status, job)
    message += f". Job reason: {judged.reason}" if judged.reason else ""
    message += f". Job message: {judged.message}" if judged.message else ""
    event = _job_event(seen, "JobSucceeded", "succeeded")
    return _end(seen, status, TrialCondition.SUCCEEDED, reason, message, event)


def _not_collected(seen: Observed, status: TrialStatus, job: JobView) -> TrialPlan:
    """Wait for collectors that may still store readings, up to the metrics timeout; then report them."""
    if job.incomplete:
        return _incomplete(seen, status, job.incomplete)
    seconds = seen.settings.metrics_timeout_seconds
    left = timedelta(seconds=seconds) - (seen.now - (job.ended_at or seen.now))
    if left > timedelta(0):
        return TrialPlan(status=status, again_after_seconds=left.total_seconds())
    return _incomplete(seen, status, f"{job.collecting} {seconds:g} s after the end of the job")


def _incomplete(seen: Observed, status: TrialStatus, cause: str) -> TrialPlan:
    """End a trial with incomplete readings without an observation, which would be partial."""
    text = f"Metrics are not complete for Job {seen.trial.name}: {cause}"
    event = TrialEvent("MetricsUnavailable", text, warning=True)
    message = f"Metrics are not complete: {cause}"
    unread = replace(seen, observation=None)
    return _end(unread, status, TrialCondition.METRICS_UNAVAILABLE, METRICS_INCOMPLETE, message, event)


def _without_metrics(seen: Observed, status: TrialStatus, job: JobView) -> TrialPlan:
    cause, left = _why_no_metrics(seen, job)
    if left > 0:
        return TrialPlan(status=status, again_after_seconds=left)
    text = f"Metrics are not available for Job {seen.trial.name}: {cause}"
    event = TrialEvent("MetricsUnavailable", text, warning=True)
    reason = "MetricsUnavailable" if job.uncollected is None else UNCOLLECTED_REASON
    message = f"Metrics are not available: {cause}"
    return _end(seen, status, TrialCondition.METRICS_UNAVAILABLE, reason, message, event)


def _why_no_metrics(seen: Observed, job: JobView) -> tuple[str, float]:
    """Return the cause, and how many seconds metrics may still take to arrive."""
    if job.uncollected is not None:
        return job.uncollected.message, 0.0 if job.uncollected.is_final else _REPAIR_SECONDS
    if job.metrics_report or seen.log_refusal:
        return job.metrics_report or _refusal(seen), 0.0
    objective = seen.trial.spec.objective
    name = missing_objective(objective, seen.observation) or ""
    pushed = seen.trial.spec.metrics_collector.kind == CollectorKind.PUSH
    waited = seen.now - (job.ended_at or seen.now)
    if seen.observation is not None:
        # The collector has reported; its explanation may follow.
        left = timedelta(seconds=0.0 if pushed else seen.settings.explanation_seconds) - waited
        if objective is not None and name not in ("", objective.objective_metric_name):
            return f'nothing reported "{name}"; each of several objectives needs a value', left.total_seconds()
        return f'"{name}" was reported, but never with a value', left.total_seconds()
    if pushed:
        remedy = "call katib.report, or Kubeflow's report_metrics, in the training code"
        return f'the job ended without reporting "{name}"; {remedy}', 0.0
    left = timedelta(seconds=seen.settings.metrics_timeout_seconds) - waited
    cause = f'nothing reported "{name}" within {seen.settings.metrics_timeout_seconds:g} s of the end of the job'
    return cause, left.total_seconds()


def _refusal(seen: Observed) -> str:
    return f"the DB manager refused readings: {seen.log_refusal}" if seen.log_refusal else ""


# --- status -----------------------------------------------------------------------------------------------------------


def _running(status: TrialStatus, now: datetime, place: str = "") -> TrialStatus:
    return with_running(status, RUNNING_REASON, f"{_IS_RUNNING} {place}".rstrip(), now)


def with_running(status: TrialStatus, reason: str, message: str, now: datetime, *, runs: bool = True) -> TrialStatus:
    """Return the status with this Running condition, the very same if it is set already."""
    old = find_condition(status.conditions, TrialCondition.RUNNING)
    word = ConditionStatus.TRUE if runs else ConditionStatus.FALSE
    if old is not None and (old.status, old.reason, old.message) == (word, reason, message):
        return status
    now = whole_second(now)
    since = status.start_time if old is None and not runs else now  # it has never run, so it has waited since then
    if old is not None and old.status == word:
        since = old.last_transition_time
    running = Condition(
        type=TrialCondition.RUNNING,
        status=word,
        reason=reason,
        message=message,
        last_update_time=now,
        last_transition_time=since,
    )
    conditions = (*without_condition(status.conditions, TrialCondition.RUNNING), running)
    return structs.replace(status, conditions=conditions)


def with_run_time(status: TrialStatus, seconds: float | None, now: datetime) -> TrialStatus:
    """Return the status with the trial's run time, the very same if nothing has to be written."""
    start, end = status.start_time, status.completion_time
    if seconds is None or start is None:
        return status
    running = find_condition(status.conditions, TrialCondition.RUNNING)
    runs = running is not None and running.status == ConditionStatus.TRUE and end is None
    known = status.run_seconds
    if not runs and (end is not None or seconds) and (known is None or seconds > known + _LATE_SECONDS):
        status = structs.replace(status, run_seconds=round(seconds, 3))
    if not runs and end is None:
        return status
    began = (end or now) - timedelta(seconds=seconds)
    if abs((began - start).total_seconds()) >= (_DRIFT_SECONDS if runs else 1.0):
        status = structs.replace(status, start_time=whole_second(began))
    return status


def cut(status: TrialStatus, why: str, now: datetime) -> TrialStatus:
    """Return the status of a trial that a feature of its experiment stops early."""
    return with_running(status, STOPPING_REASON, f"{STOPPING_WORDS}{why}", now)


def resumed(status: TrialStatus, now: datetime) -> TrialStatus:
    """Return the status of such a trial when it continues."""
    conditions = without_condition(status.conditions, TrialCondition.EARLY_STOPPED, TrialCondition.KILLED)
    again = structs.replace(status, conditions=conditions, completion_time=None, observation=None)
    message = "Trial waits: it continues with a larger budget"
    return with_running(again, WAITING_REASON, message, now, runs=False)


def ended(
    status: TrialStatus,
    type_: TrialCondition,
    reason: str,
    message: str,
    now: datetime,
    observation: Observation | None = None,
) -> TrialStatus:
    """Return the status of a trial with this end and its observation."""
    conditions = status.conditions
    old = find_condition(conditions, TrialCondition.RUNNING)
    if old is not None:  # else it ended before it was seen running, and has not waited
        waits = old.status == ConditionStatus.FALSE and not old.message.startswith(_CANNOT_RUN)
        said = (RUNNING_REASON, _IS_RUNNING) if waits else (old.reason, old.message)
        conditions = set_condition(conditions, old.type, *said, now, holds=False)
    return structs.replace(
        status,
        conditions=set_condition(conditions, type_, reason, message, now),
        observation=status.observation or observation,
        completion_time=whole_second(now),
    )


def killed(
    status: TrialStatus, message: str, now: datetime, run_seconds: float, reason: str = "TrialKilled"
) -> TrialStatus:
    """Return the status of a trial that is killed because it is not needed any more, with its run time."""
    return with_run_time(ended(status, TrialCondition.KILLED, reason, message, now), run_seconds, now)


def _end(
    seen: Observed, status: TrialStatus, type_: TrialCondition, reason: str, message: str, event: TrialEvent
) -> TrialPlan:
    status = ended(status, type_, reason, message, seen.now, seen.observation)
    return TrialPlan(status=status, delete_job=not seen.trial.spec.retain_run, event=event)


def _job_event(seen: Observed, reason: str, what: str) -> TrialEvent:
    return TrialEvent(reason, f"Job {seen.trial.name} has {what}")
