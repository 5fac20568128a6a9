"""What to do about a trial that a caller evaluates, decided from what is observed. Pure: no I/O, no clock.

Theory of operation. Such a trial has no job. It is Created and waits until a request gets it, which a lease in its
annotations says; from then on it is Running. Its caller ends it by an outcome there: it is Succeeded when its
objective was reported, Failed or EarlyStopped when the caller says so. A lease that ends without a sign of life makes
it wait again, for another caller, or fail, as the experiment has chosen. Which of two writers came first is decided by
the store, for each of them compares the revision. While no server ran, no sign of life could arrive: every lease lasts
for its whole time after the start of the one that reads it.

A trial that was evaluated elsewhere is created with its outcome, and has the times of that.

A trial that its early stopping service wants stopped says so first, and is EarlyStopped when its caller has ended it,
or was lost: until then it keeps its place among the running trials.
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
"""Reason of Running, which is False then, or of Failed, where the caller of a trial was lost."""


@dataclass(frozen=True, slots=True)
class CallersTrial:
    """The world as the controller sees it.

    Attributes:
        observation: What the log says; read only where the trial is about to end.
        verdict: Why its early stopping service wants it stopped; empty while it may go on.
        since: From when on signs of life could arrive.
        run_seconds: How long it was evaluated, as measured; None for one that ended before that was measured.
    """

    trial: Trial
    observation: Observation | None = None
    verdict: str = ""
    since: datetime = LONG_AGO
    run_seconds: float | None = None
    now: datetime = field(kw_only=True)


def comes_to_its_end(trial: Trial, now: datetime, since: datetime = LONG_AGO) -> bool:
    """Return whether the plan needs the observation of a trial, because it ends now."""
    if trial_state(trial) not in ACTIVE:
        return False
    return outcome_of(trial) is not None or (is_stopping(trial) and _seconds_left(lease_of(trial), since, now) <= 0)


def silence_of(trial: Trial, now: datetime, since: datetime) -> float | None:
    """Return how long ago the evaluation of a trial ended, or its caller was lost; None while it goes on."""
    outcome, lease = outcome_of(trial), lease_of(trial)
    if outcome is not None or lease is None or trial_state(trial) not in ACTIVE:
        return 0.0 if outcome is None else max((now - outcome.time).total_seconds(), 0.0)
    left = _seconds_left(lease, since, now)
    return None if left > 0 else lease.seconds - left


def plan_callers_trial(seen: CallersTrial) -> TrialPlan:
    """Return the next step for a trial that is not being deleted."""
    outcome, plan = outcome_of(seen.trial), _next_step(seen)
    if outcome is not None and outcome.began is not None:
        return plan  # it was evaluated elsewhere, and has the times of that
    timed, ended_before = with_run_time(plan.status, seen.run_seconds, seen.now), seen.trial.status.completion_time
    # Whoever was told of the end has written it, in whole seconds, which is near enough as a rule.
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
    # A timer of years would be kept for each trial, long after its end.
    return _under_way(seen, status, lease, None if lease.seconds >= ENDLESS_SECONDS else left)


def _seconds_left(lease: Lease | None, since: datetime, now: datetime) -> float:
    """Return how much longer a caller is waited for."""
    return 0.0 if lease is None else (max(lease.until, lease.renewed(since).until) - now).total_seconds()


def _under_way(seen: CallersTrial, status: TrialStatus, lease: Lease, left: float | None) -> TrialPlan:
    if is_stopping(seen.trial):
        return TrialPlan(status=status, again_after_seconds=left)
    reason, message = ASKED_REASON, f"Trial is running: {lease.client} evaluates it"
    if seen.verdict:
        reason, message = STOPPING_REASON, f"{STOPPING_WORDS}{seen.verdict}"
    return TrialPlan(status=with_running(status, reason, message, seen.now), again_after_seconds=left)


def _lost(seen: CallersTrial, status: TrialStatus, lease: Lease) -> TrialPlan:
    """Return what becomes of a trial whose caller gave no sign of life for too long."""
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
