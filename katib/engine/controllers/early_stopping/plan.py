"""Schedule of questions about an experiment's running trials. Pure: no I/O, no clock.

Theory of operation: one question is under way at a time, and the next one follows a moment after its answer. A question
needs no memory: a service judges by all readings so far, so a lost question or a restarted controller changes nothing.
A service that does not judge (Katib's own) gave the trials rules when they were suggested; then only rules that no
collector evaluates are checked, and the service is asked again now and then, since it may be replaced.
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
"""From an answer to the next question: a hopeless trial should be stopped within a second of the reading."""

QUICK_SECONDS = 0.02
"""The same if new readings are known to be stored, so that no question is wasted."""

LONGEST_LOOK_SECONDS = 5.0
SHARE = 5
"""Pause after a slow question, such as one about thousands of trials, as a multiple of its duration."""

SERVICE_SECONDS = 1.0
"""How often to check whether a service is ready."""

RECHECK_SECONDS = 60.0
"""How often to ask a service that does not judge whether it does now."""

FAILURES_TO_TELL = 3
"""Consecutive failures before the user is told: one may be a restart."""

BACKOFF = Backoff(0.3, 15.0)

_UNCOLLECTED = frozenset({CollectorKind.PUSH, CollectorKind.CUSTOM})
"""Collectors whose readings bypass our own, which would evaluate the rules."""


@dataclass(frozen=True, slots=True)
class Asking:
    """State of the questions about one experiment. Times are of the monotonic clock.

    Attributes:
        uid: Uid of the experiment.
        asks_service: Whether to ask the service; otherwise the trials' rules are evaluated.
        failures: Consecutive questions without an answer.
        asked_at: Time of the last question.
        next_at: Earliest time of the next one.
        quick_at: The same for a question about readings stored since.
        readings: Number of stored batches of readings at the last question.
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
    """Return whether trials may be stopped early now: the experiment continues, and its service is open."""
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
    """Return the running trials that are not already being stopped."""
    return tuple(trial for trial in trials if trial_state(trial) is TrialState.RUNNING and not is_stopping(trial))


def with_own_rules(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Return the trials whose rules only the controllers evaluate."""
    return tuple(
        trial
        for trial in trials
        if trial.spec.early_stopping_rules and trial.spec.metrics_collector.kind in _UNCOLLECTED
    )


def due_at(asking: Asking, readings: int) -> float:
    """Return the earliest time of the next question; sooner if readings were stored since the last one."""
    return asking.quick_at if readings != asking.readings else asking.next_at


def before_question(asking: Asking, moment: float, readings: int) -> Asking:
    """Return the state for the next question; if due, a service that did not judge is asked again."""
    asks_service = asking.asks_service or moment >= asking.recheck_at
    return replace(asking, asked_at=moment, readings=readings, asks_service=asks_service)


def after_answer(asking: Asking, moment: float) -> Asking:
    rest = SHARE * (moment - asking.asked_at)
    pause, quick = (min(max(least, rest), LONGEST_LOOK_SECONDS) for least in (LOOK_SECONDS, QUICK_SECONDS))
    return replace(asking, failures=0, next_at=moment + pause, quick_at=moment + quick)


def after_refusal(asking: Asking, moment: float) -> Asking:
    """Return the state after the answer of a service that does not judge."""
    return replace(
        asking, asks_service=False, failures=0, next_at=moment, quick_at=moment, recheck_at=moment + RECHECK_SECONDS
    )


def after_failure(asking: Asking, moment: float) -> Asking:
    """Return the state after a failed question."""
    failures = asking.failures + 1
    next_at = moment + BACKOFF.pause_seconds(failures)
    return replace(asking, failures=failures, next_at=next_at, quick_at=next_at)
