"""Plan of the next step for a trial that a caller evaluates. Pure: no I/O, no clock.

Theory of operation. Such a trial has no job. It is Created and waits until a caller requests it and a lease is set in
its annotations; from then on it is Running. Its caller ends it by an outcome there: it is Succeeded if its objective
was reported, Failed or EarlyStopped if the outcome is that. If its lease expires, the trial waits again, for another
caller, or fails, as the experiment has chosen. The store decides between two writers, since each compares the
revision. While no server ran, no lease could be renewed: every lease lasts its full time after the start of the server
that reads it.

A trial that was evaluated elsewhere is created with its outcome, and has the times of that.

A verdict of the early stopping service is first stored in the status; the trial is EarlyStopped once its caller has
ended it, or was lost: until then it keeps its place among the running trials.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from msgspec import structs

from katib.engine.controllers.trial.plan import (
    STOPPING_REASON,
    STOPPING_WORDS,
    UNMEASURED_REASON,
    TrialEvent,
    TrialPlan,
    ended,
    is_stopping,
    stopped_reason,
    with_run_time,
    with_running,
)
from katib.model.conditions import find_condition, whole_second, with_start
from katib.model.failure_text import TRIAL_HAS_FAILED
from katib.model.leases import ENDLESS_SECONDS, LONG_AGO, Lease, Outcome, fails_when_lost, lease_of, outcome_of
from katib.model.trials import ACTIVE, missing_objective, trial_state
from katib.model.types import CollectorKind, Observation, Trial, TrialCondition, TrialStatus

ASKED_REASON = "TrialAsked"
"""Reason of Running while a caller evaluates the trial."""

LEASE_ENDED_REASON = "TrialLeaseEnded"
"""Reason of Running, then False, or of Failed, if the trial's caller was lost."""


@dataclass(frozen=True, slots=True)
class CallersTrial:
    """The observed state.

    Attributes:
        observation: The observation in the log; read only if the trial is about to end.
        verdict: Why its early stopping service wants it stopped; empty while it may continue.
        since: Time from which leases could be renewed.
        run_seconds: Measured time of its evaluation; None if it ended before it was measured.
    """

    trial: Trial
    observation: Observation | None = None
    verdict: str = ""
    since: datetime = LONG_AGO
    run_seconds: float | None = None
    now: datetime = field(kw_only=True)


def comes_to_its_end(trial: Trial, now: datetime, since: datetime = LONG_AGO) -> bool:
    """Return whether the trial ends now, so that the plan needs its observation."""
    if trial_state(trial) not in ACTIVE:
        return False
    return outcome_of(trial) is not None or (is_stopping(trial) and _seconds_left(lease_of(trial), since, now) <= 0)


def silence_of(trial: Trial, now: datetime, since: datetime) -> float | None:
    """Return the time since a trial's evaluation ended or its caller was lost; None while it is evaluated."""
    outcome, lease = outcome_of(trial), lease_of(trial)
    if outcome is not None or lease is None or trial_state(trial) not in ACTIVE:
        return 0.0 if outcome is None else max((now - outcome.time).total_seconds(), 0.0)
    left = _seconds_left(lease, since, now)
    return None if left > 0 else lease.seconds - left


def plan_callers_trial(seen: CallersTrial) -> TrialPlan:
    """Return the next step for a trial that is not being deleted."""
    outcome, plan = outcome_of(seen.trial), _next_step(seen)
    if outcome is not None and outcome.began is not None:
        return plan  # evaluated elsewhere, with the times of that
    timed, ended_before = with_run_time(plan.status, seen.run_seconds, seen.now), seen.trial.status.completion_time
    # The caller's client has written the end in whole seconds, which is near enough as a rule.
    is_timed = ended_before is not None and timed.start_time == plan.status.start_time
    return plan if is_timed else replace(plan, status=timed)


def _next_step(seen: CallersTrial) -> TrialPlan:
    outcome, lease = outcome_of(seen.trial), lease_of(seen.trial)
    if outcome is not None and outcome.began is not None:
        seen = replace(seen, now=outcome.time)
        status = with_start(seen.trial.status, "Trial", outcome.began)
    else:
        status = with_start(seen.trial.status, "Trial", seen.now)
    if trial_state(seen.trial) not in ACTIVE:
        if status.completion_time is None:
            status = structs.replace(status, completion_time=whole_second(seen.now))
        return TrialPlan(status=status)
    if outcome is not None:
        return _ended_by_caller(seen, status, outcome)
    if lease is None:
        return TrialPlan(status=status)
    left = _seconds_left(lease, seen.since, seen.now)
    if left <= 0:
        return _lost(seen, status, lease)
    # A timer of years would outlive its trial.
    return _under_way(seen, status, lease, None if lease.seconds >= ENDLESS_SECONDS else left)


def _seconds_left(lease: Lease | None, since: datetime, now: datetime) -> float:
    """Return the remaining time of a lease; 0 without one."""
    return 0.0 if lease is None else (max(lease.until, lease.renewed(since).until) - now).total_seconds()


def _under_way(seen: CallersTrial, status: TrialStatus, lease: Lease, left: float | None) -> TrialPlan:
    if is_stopping(seen.trial):
        return TrialPlan(status=status, again_after_seconds=left)
    reason, message = ASKED_REASON, f"Trial is running: {lease.client} evaluates it"
    if seen.verdict:
        reason, message = STOPPING_REASON, f"{STOPPING_WORDS}{seen.verdict}"
    return TrialPlan(status=with_running(status, reason, message, seen.now), again_after_seconds=left)


def _lost(seen: CallersTrial, status: TrialStatus, lease: Lease) -> TrialPlan:
    """Return the plan for a trial whose lease has expired."""
    name, cause = seen.trial.name, f"{lease.client} gave no sign of life for {lease.seconds:g} s"
    if is_stopping(seen.trial):
        return _stopped(seen, status)
    if fails_when_lost(seen.trial):
        event = TrialEvent("TrialFailed", f"Trial {name} has failed: {cause}", warning=True)
        return _end(seen, status, TrialCondition.FAILED, LEASE_ENDED_REASON, f"{TRIAL_HAS_FAILED}: {cause}", event)
    message = f"waits to be asked for again: {cause}"
    waiting = with_running(status, LEASE_ENDED_REASON, f"Trial {message}", seen.now, runs=False)
    event = TrialEvent(LEASE_ENDED_REASON, f"Trial {name} {message}", warning=True)
    return TrialPlan(status=waiting, event=None if waiting is status else event)


def _ended_by_caller(seen: CallersTrial, status: TrialStatus, outcome: Outcome) -> TrialPlan:
    trial = seen.trial
    if is_stopping(trial) or outcome.stopped:
        return _stopped(seen, status)
    if outcome.failure is not None:
        cause = outcome.failure or "its caller says so"
        event = TrialEvent("TrialFailed", f"Trial {trial.name} has failed: {cause}")
        return _end(seen, status, TrialCondition.FAILED, "TrialFailed", f"{TRIAL_HAS_FAILED}: {cause}", event)
    if missing_objective(trial.spec.objective, seen.observation) is None:
        reason, message = "TrialSucceeded", "Trial has succeeded"
    elif trial.spec.metrics_collector.kind == CollectorKind.NONE:
        reason, message = UNMEASURED_REASON, "Trial has succeeded, without metrics: its collector is None"
    else:
        name = missing_objective(trial.spec.objective, seen.observation) or ""
        message = f'Metrics are not available: its caller ended it without "{name}"'
        event = TrialEvent("MetricsUnavailable", message, warning=True)
        return _end(seen, status, TrialCondition.METRICS_UNAVAILABLE, "MetricsUnavailable", message, event)
    event = TrialEvent("TrialSucceeded", f"Trial {trial.name} has succeeded")
    return _end(seen, status, TrialCondition.SUCCEEDED, reason, message, event)


def _stopped(seen: CallersTrial, status: TrialStatus) -> TrialPlan:
    running = find_condition(status.conditions, TrialCondition.RUNNING)
    message, why = "Trial is early stopped", ""
    if running is not None and is_stopping(seen.trial):
        why = running.message.removeprefix(STOPPING_WORDS)
        message = f"{message}: {why}"
        status = with_running(status, ASKED_REASON, "Trial is running", seen.now)
    event = TrialEvent("TrialEarlyStopped", f"Trial {seen.trial.name} has been stopped early")
    return _end(seen, status, TrialCondition.EARLY_STOPPED, stopped_reason(why), message, event)


def _end(
    seen: CallersTrial, status: TrialStatus, type_: TrialCondition, reason: str, message: str, event: TrialEvent
) -> TrialPlan:
    return TrialPlan(status=ended(status, type_, reason, message, seen.now, seen.observation), event=event)
