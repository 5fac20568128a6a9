"""Plan of the next step for an open Suggestion. Pure: one step from the observed state.

Theory of operation: the service comes up, accepts the experiment, and is asked whenever assignments are outstanding.
A service that has no more until a running trial ends is asked again when one has; a restarted controller does not know
of that wait, and learns of it with one question.
An unreachable service is retried without end, and a condition of the Suggestion reports it once that has lasted; one
that answers, but fails on the question or returns unusable assignments, is given up after a while.
One call at a time is under way; its answer is kept until its effect is stored. Acceptance of the experiment is stored
before anything is asked: while it cannot be, its call must not give way to the next one, or the two would alternate,
each enqueuing the other, for as long as the disk is full.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from msgspec import structs

from katib.engine.controllers.calls import SeenCall
from katib.engine.controllers.settings import ControllerSettings
from katib.engine.controllers.suggestion import states
from katib.engine.controllers.suggestion.replies import (
    MalformedReplyError,
    Question,
    RejectedReplyError,
    accepted,
    initial_trials_left,
    open_question,
    waiting_assignments,
    with_initial_trials,
)
from katib.errors import Backoff, InvalidError, KatibError, UnavailableError
from katib.model.conditions import Conditions, is_true, with_start, without_condition
from katib.model.types import EarlierTrialsStatus, Experiment, Suggestion, SuggestionCondition, SuggestionStatus

BACKOFF = Backoff(0.05, 15.0)

FAILURES_TO_TELL = 3
"""Consecutive calls that did not reach the service before the user is told: one may be a restart."""

MOST_REJECTIONS = 100
"""Replies in a row whose assignments all violate the constraints: 25,000 assignments, of which one in a thousand should
be allowed."""

WAIT_SECONDS = 60.0
"""Pause before asking a waiting service again although no trial has ended: it may wait for something else as well."""

Purpose = Question | Literal["validate"]
"""Purpose of a call."""


@dataclass(frozen=True, slots=True)
class Streak:
    """Consecutive failures of a service.

    Attributes:
        since: Monotonic time of the first.
        next_try: Earliest monotonic time of the next attempt.
        away: Whether the service did not answer, which may pass; otherwise it answered badly.
        rejections: Number of replies without an assignment that the constraints allow.
    """

    count: int
    since: float
    next_try: float
    away: bool = False
    rejections: int = 0


def longer_streak(streak: Streak | None, moment: float, *, away: bool) -> Streak:
    """Return the streak with one more failure; one of the other kind begins a new streak."""
    old = streak if streak is not None and streak.away == away else Streak(0, moment, moment, away)
    count = old.count + 1
    return Streak(count, old.since, moment + BACKOFF.pause_seconds(count), away)


@dataclass(frozen=True, slots=True)
class Wait:
    """A service has no more assignments until a trial ends.

    Attributes:
        ended: Number of ended trials when it was asked.
        until: Monotonic time at which to ask again even if none has ended since.
    """

    ended: int
    until: float


@dataclass(frozen=True, slots=True)
class Seen:
    """The observed state.

    Attributes:
        is_ready: Whether the service can be asked.
        waiting_for: Known cause of its delay; empty if there is none.
        failure: Why it will never be ready; empty while it may be.
        call: The pending or answered call: a reply to a Question, nothing to a validation.
        earlier: Summary of the earlier trials; None without a warm start.
        ended: Number of ended trials of the experiment.
        active: Number of its trials that have not ended.
        wait: The wait announced by the last answer; None if there is none.
    """

    experiment: Experiment
    suggestion: Suggestion
    is_ready: bool = False
    waiting_for: str = ""
    failure: str = ""
    call: SeenCall[Purpose] | None = None
    streak: Streak | None = None
    taken: Container[str] = ()
    earlier: EarlierTrialsStatus | None = None
    ended: int = 0
    active: int = 0
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """Actions, in this order.

    Attributes:
        warnings: Events to record, as reason and message.
        retry_after_seconds: When to reconcile again without an event; None for never.
    """

    status: SuggestionStatus
    forgets_call: bool = False
    streak: Streak | None = None
    wait: Wait | None = None
    warnings: tuple[tuple[str, str], ...] = ()
    call: Purpose | None = None
    retry_after_seconds: float | None = None


def next_step(seen: Seen, settings: ControllerSettings, *, now: datetime, moment: float) -> Step:
    """Return the next step.

    Args:
        now: Time of new conditions.
        moment: Monotonic time, for patience.

    Raises:
        BaseException: The call's exception, if it is not a KatibError: a bug.
    """
    status = with_start(seen.suggestion.status, "Suggestion", now)
    conditions = status.conditions
    if seen.is_ready and not seen.failure:
        conditions = states.deployment_ready(conditions, now)
    status = _with(status, conditions, start_time=status.start_time or now, earlier_trials=seen.earlier)
    if status is not seen.suggestion.status:
        seen = replace(seen, suggestion=structs.replace(seen.suggestion, status=status))
    if seen.failure or not seen.is_ready:
        return _without_service(seen, status, now)
    if seen.streak is not None and seen.streak.next_try > moment:
        return Step(status, streak=seen.streak, retry_after_seconds=seen.streak.next_try - moment)
    is_accepted = is_true(status.conditions, SuggestionCondition.RUNNING)
    rejections = 0 if seen.streak is None else seen.streak.rejections
    purpose: Purpose | None = open_question(seen.suggestion, seen.ended, rejections) if is_accepted else "validate"
    if purpose != "validate" and seen.suggestion.spec.initial_trials and _has_initial_trials(seen):
        status, purpose = with_initial_trials(seen.experiment, seen.suggestion, seen.taken), None
    if purpose is None:
        conditions = without_condition(status.conditions, states.UNAVAILABLE, states.WAITING)
        return Step(_with(status, conditions), forgets_call=True)
    wait = seen.wait
    asks = seen.call is None and isinstance(purpose, Question)
    if asks and wait is not None and seen.ended == wait.ended and moment < wait.until:  # the answer would be the same
        return Step(status, streak=seen.streak, wait=wait, retry_after_seconds=wait.until - moment)
    made = None if seen.call is None else seen.call.purpose
    is_same_question = isinstance(made, Question) and isinstance(purpose, Question) and made.base == purpose.base
    serves = made == purpose or is_same_question  # even if the number of wanted assignments has changed
    if seen.call is None or (seen.call.is_done and not serves):
        return Step(status, streak=seen.streak, call=purpose)
    return _after_call(seen, seen.call, settings, status, now, moment)


def _after_call(
    seen: Seen,
    call: SeenCall[Purpose],
    settings: ControllerSettings,
    status: SuggestionStatus,
    now: datetime,
    moment: float,
) -> Step:
    """Return the next step, given a call for the needed purpose."""
    if not call.is_done:
        return Step(status, streak=seen.streak)  # the answer enqueues it
    try:
        if call.error is not None:
            raise call.error
        if isinstance(call.purpose, Question) and call.answer is not None:
            stored = accepted(seen.experiment, seen.suggestion, call.purpose, call.answer, taken=seen.taken, now=now)
        else:
            stored = _with(status, states.running(status.conditions, now))
        stored = _with(stored, without_condition(stored.conditions, states.UNAVAILABLE))
        if call.answer is not None and call.answer.waits:
            return _waiting_for_trials(seen, call, stored, moment)
        return Step(stored, forgets_call=True)
    except InvalidError as error:
        return _given_up(status, f"Validation failed: {error}", now)
    except RejectedReplyError as error:
        return _rejected_once(seen, status, error, now, moment)
    except (KatibError, MalformedReplyError) as error:
        return _failed_once(seen, settings, status, error, now, moment)


def _without_service(seen: Seen, status: SuggestionStatus, now: datetime) -> Step:
    if seen.failure:
        return _given_up(status, seen.failure, now)
    conditions = states.deployment_not_ready(status.conditions, seen.waiting_for, now)
    if not seen.waiting_for:
        return Step(_with(status, conditions), streak=seen.streak)
    is_new = seen.waiting_for != states.unavailable_cause(conditions)
    warnings = (("SuggestionServiceWaiting", seen.waiting_for),) if is_new else ()
    conditions = states.unavailable(conditions, seen.waiting_for, now)
    return Step(_with(status, conditions), streak=seen.streak, warnings=warnings)


def _waiting_for_trials(seen: Seen, call: SeenCall[Purpose], status: SuggestionStatus, moment: float) -> Step:
    """Return the step after an answer with too few assignments and more once a trial ends."""
    ended = call.purpose.ended if isinstance(call.purpose, Question) else seen.ended
    if not seen.active and not waiting_assignments(structs.replace(seen.suggestion, status=status), seen.taken):
        if ended == seen.ended:
            raise MalformedReplyError("it waits for a running trial to end, and none is running")
        return Step(status, forgets_call=True, retry_after_seconds=0.0)
    wait = Wait(ended, moment + WAIT_SECONDS)
    pause = 0.0 if ended != seen.ended else WAIT_SECONDS
    return Step(status, forgets_call=True, wait=wait, retry_after_seconds=pause)


def _has_initial_trials(seen: Seen) -> bool:
    """Return whether initial trials come next: not while a question is pending, whose answer would be lost."""
    asks = seen.call is not None and isinstance(seen.call.purpose, Question)
    outstanding = seen.suggestion.spec.requests - seen.suggestion.status.suggestion_count
    return outstanding > 0 and initial_trials_left(seen.suggestion) > 0 and not asks


def _rejected_once(seen: Seen, status: SuggestionStatus, error: Exception, now: datetime, moment: float) -> Step:
    """Return the step that asks again at once, for more assignments, unless that was done often enough."""
    rejections = 1 + (0 if seen.streak is None else seen.streak.rejections)
    if rejections > MOST_REJECTIONS:
        message = f"All suggestions of {rejections} replies in a row violate spec.parameterConstraints: {error}"
        return _given_up(status, message, now)
    streak = Streak(rejections, moment, moment, rejections=rejections)
    return Step(status, forgets_call=True, streak=streak, retry_after_seconds=0.0)


def _failed_once(
    seen: Seen, settings: ControllerSettings, status: SuggestionStatus, error: Exception, now: datetime, moment: float
) -> Step:
    streak = longer_streak(seen.streak, moment, away=isinstance(error, UnavailableError))
    words = str(error)
    failed = ("SuggestionServiceFailed", words)
    pause = streak.next_try - moment
    if streak.away:
        if streak.count >= FAILURES_TO_TELL and not states.unavailable_cause(status.conditions):
            status = _with(status, states.unavailable(status.conditions, words, now))
    elif streak.count >= settings.service_attempts and moment - streak.since >= settings.service_patience_seconds:
        return _given_up(status, f"Suggestion service failed {streak.count} times in a row: {words}", now, failed)
    return Step(status, forgets_call=True, streak=streak, warnings=(failed,), retry_after_seconds=pause)


def _given_up(status: SuggestionStatus, message: str, now: datetime, *warnings: tuple[str, str]) -> Step:
    failed = _with(status, states.failed(status.conditions, message, now))
    return Step(failed, forgets_call=True, warnings=(*warnings, ("SuggestionFailed", message)))


def _with(status: SuggestionStatus, conditions: Conditions, **changes: Any) -> SuggestionStatus:
    """Return the status with the changes applied; the very same status if nothing differs."""
    changes["conditions"] = conditions
    for name, value in changes.items():
        if getattr(status, name) != value:
            return structs.replace(status, **changes)
    return status
