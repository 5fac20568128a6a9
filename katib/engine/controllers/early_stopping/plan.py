"""When to ask about the running trials of an experiment, and whom. Pure: no I/O, no clock.

Theory of operation: one question is under way at a time, and the next one follows a moment after its answer. What is
asked needs no memory: a service judges by all that is known, so a question that got lost, or a controller that was
started again, changes nothing. A service that does not judge (Katib's own) gave the trials rules when they were
suggested; then only those rules are looked at that no collector evaluates, and the service is asked again now and then,
for it may be replaced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from katib.engine.controllers.suggestion import states
from katib.engine.controllers.trial.plan import is_stopping
from katib.errors import Backoff
from katib.model.conditions import is_true
from katib.model.trials import trial_state
from katib.model.types import CollectorKind, Experiment, ExperimentCondition, Suggestion, Trial, TrialState

LOOK_SECONDS = 0.3
"""From an answer to the next question: a hopeless trial is to be stopped within a second of the reading."""

QUICK_SECONDS = 0.02
"""The same where new readings are known to be stored, so that no question is put for nothing."""

LONGEST_LOOK_SECONDS = 5.0
SHARE = 5
"""A question that takes long, as one about thousands of trials may, waits so many times as long for the next one."""

SERVICE_SECONDS = 1.0
"""How often to look whether a service is ready."""

RECHECK_SECONDS = 60.0
"""How often to ask a service that does not judge whether it does by now."""

FAILURES_TO_TELL = 3
"""From how many failures in a row on the user should know: one may be a restart."""

BACKOFF = Backoff(0.3, 15.0)

_UNCOLLECTED = frozenset({CollectorKind.PUSH, CollectorKind.CUSTOM})
"""Kinds of trials whose readings pass through no collector of ours, which would evaluate their rules."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How far the questions about one experiment are. Times are of the monotonic clock.

    Attributes:
        uid: Of the experiment.
        asks_service: Whether the service is to be asked; otherwise the trials' rules are looked at.
        failures: Questions in a row without an answer.
        asked_at: When the last question was put.
        next_at: From when on the next one may be.
        quick_at: The same for a question about readings that were stored since.
        readings: How many batches of readings were known to be stored at the last question.
        recheck_at: When to ask a service again that does not judge.
    """

    uid: str
    asks_service: bool = True
    failures: int = 0
    asked_at: float = 0.0
    next_at: float = 0.0
    quick_at: float = 0.0
    readings: int = 0
    recheck_at: float = 0.0


def is_watched(experiment: Experiment, suggestion: Suggestion | None) -> bool:
    """Return whether trials of an experiment may be stopped early now: it goes on, and so does its service."""
    conditions = experiment.status.conditions
    return (
        experiment.spec.early_stopping is not None
        and experiment.metadata.deletion_timestamp is None
        and not is_true(conditions, ExperimentCondition.SUCCEEDED)
        and not is_true(conditions, ExperimentCondition.FAILED)
        and suggestion is not None
        and not states.is_closed(suggestion.status.conditions)
    )


def stoppable(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the trials that run and are not being stopped already."""
    return tuple(trial for trial in trials if trial_state(trial) is TrialState.RUNNING and not is_stopping(trial))


def with_own_rules(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the trials whose rules only the controllers evaluate."""
    return tuple(
        trial
        for trial in trials
        if trial.spec.early_stopping_rules and trial.spec.metrics_collector.kind in _UNCOLLECTED
    )


def due_at(asking: Asking, readings: int) -> float:
    """Return when the next question may be put, at once where more readings are stored than at the last one."""
    return asking.quick_at if readings != asking.readings else asking.next_at


def before_question(asking: Asking, moment: float, readings: int) -> Asking:
    """Return the state in which a question is put: when it is due, a service that did not judge is asked again."""
    asks_service = asking.asks_service or moment >= asking.recheck_at
    return replace(asking, asked_at=moment, readings=readings, asks_service=asks_service)


def after_answer(asking: Asking, moment: float) -> Asking:
    """Return the state after an answer."""
    rest = SHARE * (moment - asking.asked_at)
    pause, quick = (min(max(least, rest), LONGEST_LOOK_SECONDS) for least in (LOOK_SECONDS, QUICK_SECONDS))
    return replace(asking, failures=0, next_at=moment + pause, quick_at=moment + quick)


def after_refusal(asking: Asking, moment: float) -> Asking:
    """Return the state once a service has said that it does not judge."""
    return replace(
        asking, asks_service=False, failures=0, next_at=moment, quick_at=moment, recheck_at=moment + RECHECK_SECONDS
    )


def after_failure(asking: Asking, moment: float) -> Asking:
    """Return the state after a question without an answer."""
    failures = asking.failures + 1
    next_at = moment + BACKOFF.pause_seconds(failures)
    return replace(asking, failures=failures, next_at=next_at, quick_at=next_at)
