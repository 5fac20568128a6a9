"""The next step of a conversation with a suggestion service, from what is seen. Time is a number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from katib.engine.controllers.calls import SeenCall
from katib.engine.controllers.ports import SuggestionsReply
from katib.engine.controllers.settings import ControllerSettings
from katib.engine.controllers.suggestion import states
from katib.engine.controllers.suggestion.plan import BACKOFF, WAIT_SECONDS, Seen, Step, Streak, Wait, next_step
from katib.engine.controllers.suggestion.replies import Question
from katib.errors import FieldError, InternalError, InvalidError, UnavailableError
from katib.model.conditions import find_condition, is_true, with_start
from katib.model.types import Condition, ParameterAssignment, SuggestionStatus, TrialAssignment
from tests.support.planning import NOW, experiment, suggestion

SETTINGS = ControllerSettings(service_attempts=3, service_patience_seconds=10)
CREATED = with_start(SuggestionStatus(), "Suggestion", NOW).conditions
RUNNING = states.running(states.deployment_ready(CREATED, NOW), NOW)
ASKED = Question(0, 2)
POINT = TrialAssignment(parameter_assignments=(ParameterAssignment(name="lr", value="0.05"),))


def seen(*conditions: Condition, requests: int = 2, count: int = 0, **fields: Any) -> Seen:
    found = suggestion(*conditions, requests=requests, suggestion_count=count, start_time=NOW)
    return Seen(experiment(), found, **{"is_ready": True, **fields})


def step(given: Seen, moment: float = 0.0) -> Step:
    return next_step(given, SETTINGS, now=NOW, moment=moment)


def answered(*points: TrialAssignment, exhausted: bool = False, purpose: Question = ASKED) -> SeenCall:
    return SeenCall(purpose, is_done=True, answer=SuggestionsReply(points, (), exhausted))


BROKEN = InternalError("division by zero")


def failed(error: BaseException = UnavailableError("down")) -> SeenCall:  # noqa: B008 - only read
    return SeenCall(ASKED, is_done=True, error=error)


def test_a_service_that_starts_is_waited_for() -> None:
    first = step(seen(is_ready=False))
    again = step(Seen(experiment(), suggestion(*first.status.conditions, start_time=NOW)))

    assert [(c.type, c.status) for c in first.status.conditions] == [("Created", "True"), ("DeploymentReady", "False")]
    assert (first.call, first.retry_after_seconds, first.warnings) == (None, None, ())
    assert again == first


def test_what_a_service_waits_for_is_told_when_it_is_new() -> None:
    first = step(seen(is_ready=False, waiting_for="no room"))
    again = step(seen(*first.status.conditions, is_ready=False, waiting_for="no room"))

    assert (first.warnings, again.warnings) == ((("SuggestionServiceWaiting", "no room"),), ())


def test_a_service_that_never_starts_fails_the_suggestion() -> None:
    given_up = step(seen(is_ready=False, failure="exited with 3", streak=Streak(1, 0.0, 0.05)))

    assert states.is_closed(given_up.status.conditions)
    assert given_up.warnings == (("SuggestionFailed", "exited with 3"),)
    assert given_up.streak is None


def test_the_experiment_is_validated_first_and_that_is_stored_before_anything_is_asked() -> None:
    asked = step(seen())
    accepted = step(seen(call=SeenCall("validate", is_done=True)))

    assert (asked.call, asked.forgets_call) == ("validate", False)
    assert (accepted.call, accepted.forgets_call) == (None, True)
    assert is_true(accepted.status.conditions, "Running")
    assert step(seen(*accepted.status.conditions)).call == ASKED


def test_a_refused_experiment_fails_at_once() -> None:
    error = InvalidError([FieldError("spec.algorithm", "bad", "fix it", "x")])
    refused = step(seen(call=SeenCall("validate", is_done=True, error=error)))

    assert states.is_closed(refused.status.conditions)
    assert refused.warnings[0][1].startswith("Validation failed: ")


@pytest.mark.parametrize("purpose", ["validate", ASKED, Question(7, 1)], ids=str)
def test_a_call_under_way_is_waited_for_whatever_it_is_for(purpose: Any) -> None:
    waited = step(seen(*RUNNING, call=SeenCall(purpose)))

    assert (waited.call, waited.forgets_call, waited.retry_after_seconds) == (None, False, None)


def test_an_answer_to_something_else_gives_way() -> None:
    assert step(seen(*RUNNING, call=SeenCall("validate", is_done=True))).call == ASKED
    assert step(seen(*RUNNING, count=1, call=answered(POINT, POINT))).call == Question(1, 1)


def test_an_answer_is_taken_and_counts_as_a_success() -> None:
    taken = step(seen(*RUNNING, call=answered(POINT, POINT), streak=Streak(2, 0.0, 0.0)), moment=1.0)

    assert len(taken.status.suggestions) == taken.status.suggestion_count == 2
    assert (taken.forgets_call, taken.streak, taken.warnings) == (True, None, ())


def test_an_answer_is_as_good_when_more_are_wanted_by_now() -> None:
    assert step(seen(*RUNNING, requests=5, call=answered(POINT, POINT))).status.suggestion_count == 2


def test_with_nothing_outstanding_nothing_is_asked() -> None:
    rest = step(seen(*RUNNING, requests=2, count=2))

    assert (rest.call, rest.forgets_call, rest.retry_after_seconds) == (None, True, None)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(failed(), id="unavailable"),
        pytest.param(answered(POINT), id="too few"),
        pytest.param(answered(exhausted=True), id="the very first answer is empty"),
    ],
)
def test_a_failure_is_told_and_tried_again_after_a_pause(call: SeenCall) -> None:
    first = step(seen(*RUNNING, call=call), moment=100.0)
    waits = step(seen(*RUNNING, streak=first.streak), moment=100.03)
    tried = step(seen(*RUNNING, streak=first.streak), moment=100.06)

    assert [reason for reason, _ in first.warnings] == ["SuggestionServiceFailed"]
    assert (first.forgets_call, first.retry_after_seconds) == (True, pytest.approx(BACKOFF.first_seconds))
    assert not states.is_closed(first.status.conditions)
    assert not states.is_exhausted(first.status.conditions)
    assert first.streak == Streak(1, 100.0, 100.05, away=call.error is not None)
    assert (waits.call, waits.retry_after_seconds) == (None, pytest.approx(0.02))
    assert (tried.call, tried.streak) == (ASKED, first.streak)


@pytest.mark.parametrize(
    ("failures", "moment", "gives_up"),
    [
        pytest.param(1, 20.0, False, id="for long, but few"),
        pytest.param(50, 5.0, False, id="many within a moment"),
        pytest.param(2, 10.0, True, id="many for long"),
    ],
)
def test_a_service_is_given_up_after_many_failures_for_a_long_time(
    failures: int, moment: float, *, gives_up: bool
) -> None:
    given = step(seen(*RUNNING, call=failed(BROKEN), streak=Streak(failures, 0.0, 0.0)), moment)

    assert states.is_closed(given.status.conditions) is gives_up
    assert [reason for reason, _ in given.warnings] == ["SuggestionServiceFailed", "SuggestionFailed"][: 1 + gives_up]
    assert (given.streak is None) is gives_up


def test_a_service_that_is_away_is_asked_without_end_and_that_is_told_until_it_answers() -> None:
    conditions, streak, causes, closed = RUNNING, None, [], False
    for number in range(60):
        given = step(seen(*conditions, call=failed(UnavailableError(f"down {number}")), streak=streak), 100.0 * number)
        conditions, streak = given.status.conditions, given.streak
        causes.append(states.unavailable_cause(conditions))
        closed = closed or states.is_closed(conditions)
    starts = step(seen(*conditions, is_ready=False, streak=streak))
    held_up = step(seen(*conditions, is_ready=False, waiting_for="no memory", streak=streak))
    asked = step(seen(*conditions, streak=streak), 10_000.0)
    answers = step(seen(*conditions, call=answered(POINT, POINT), streak=streak), 10_000.0)
    unasked = step(seen(*conditions, requests=0))

    assert (closed, streak) == (False, Streak(60, 0.0, 5915.0, away=True))
    assert causes == ["", "", *["down 2"] * 58]
    assert states.unavailable_cause(starts.status.conditions) == "down 2"
    assert states.unavailable_cause(held_up.status.conditions) == "no memory"
    assert (asked.call, states.unavailable_cause(asked.status.conditions)) == (ASKED, "down 2")
    assert [states.unavailable_cause(s.status.conditions) for s in (answers, unasked)] == ["", ""]


def test_that_a_service_was_away_is_not_held_against_one_that_breaks() -> None:
    broke = step(seen(*RUNNING, call=failed(BROKEN), streak=Streak(60, 0.0, 0.0, away=True)), 100.0)

    assert broke.streak == Streak(1, 100.0, 100.05)
    assert not states.is_closed(broke.status.conditions)


def test_an_error_that_is_not_ours_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        step(seen(*RUNNING, call=failed(ZeroDivisionError())))


def test_a_service_that_went_away_keeps_its_failures() -> None:
    streak = Streak(2, 0.0, 5.0)

    assert step(replace(seen(*RUNNING), is_ready=False, streak=streak)).streak == streak


def waiting(*points: TrialAssignment, explanation: str = "", ended: int = 0) -> SeenCall:
    """Return an answer of a service that has no more until a trial ends."""
    reply = SuggestionsReply(points, waits=True, explanation=explanation)
    return SeenCall(Question(0, 2, ended=ended), is_done=True, answer=reply)


def test_a_service_that_waits_is_left_alone_until_a_trial_ends() -> None:
    first = step(seen(*RUNNING, call=waiting(explanation="rung 0 runs"), active=1), moment=10.0)
    later = step(seen(*first.status.conditions, wait=first.wait, active=1), moment=30.0)
    ended = step(seen(*first.status.conditions, wait=first.wait, active=1, ended=1), moment=30.0)

    condition = find_condition(first.status.conditions, states.WAITING)
    assert condition is not None
    assert (condition.status, condition.message) == ("True", "rung 0 runs")
    assert (first.forgets_call, first.streak, first.warnings) == (True, None, ())
    assert not states.is_exhausted(first.status.conditions)
    assert first.wait == Wait(0, 10.0 + WAIT_SECONDS)
    assert (later.call, later.wait, later.retry_after_seconds) == (None, first.wait, pytest.approx(WAIT_SECONDS - 20))
    assert ended.call == Question(0, 2, ended=1)


def test_what_a_waiting_service_does_give_is_taken() -> None:
    taken = step(seen(*RUNNING, call=waiting(POINT)), moment=10.0)

    assert len(taken.status.suggestions) == taken.status.suggestion_count == 1
    assert taken.wait is not None


def test_a_trial_that_ended_during_the_question_has_it_asked_again_at_once() -> None:
    taken = step(seen(*RUNNING, call=waiting(ended=3), active=1, ended=4))

    assert taken.retry_after_seconds == 0.0
    assert step(seen(*taken.status.conditions, wait=taken.wait, active=1, ended=4)).call == Question(0, 2, ended=4)


def test_a_waiting_service_is_asked_again_after_a_while_even_if_nothing_ends() -> None:
    still = seen(*RUNNING, wait=Wait(0, 70.0), active=1)

    assert step(still, moment=69.0).call is None
    assert step(still, moment=70.0).call == ASKED


def test_more_that_is_wanted_does_not_have_a_waiting_service_asked_again() -> None:
    assert step(seen(*RUNNING, requests=9, wait=Wait(0, 70.0), active=1), moment=1.0).call is None


def test_to_wait_for_a_trial_where_none_runs_is_a_failure_of_the_service() -> None:
    first = step(seen(*RUNNING, call=waiting()), moment=100.0)
    given_up = step(seen(*RUNNING, call=waiting(), streak=Streak(2, 0.0, 0.0)), moment=10.0)

    told = "it waits for a running trial to end, and none is running"
    assert first.warnings == (("SuggestionServiceFailed", told),)
    assert first.retry_after_seconds == pytest.approx(BACKOFF.first_seconds)
    assert not states.is_closed(first.status.conditions)
    assert states.is_closed(given_up.status.conditions)


def test_an_answer_after_the_wait_takes_the_condition_back() -> None:
    waits = step(seen(*RUNNING, call=waiting(), active=1)).status.conditions
    other = step(seen(*waits, call=waiting(explanation="rung 1 runs"), active=1)).status.conditions
    goes_on = step(seen(*waits, call=answered(POINT, POINT))).status.conditions
    ends = step(seen(*waits, count=1, call=answered(exhausted=True, purpose=Question(1, 1)))).status.conditions
    unasked = step(seen(*waits, requests=0)).status.conditions

    message = find_condition(other, states.WAITING)
    assert message is not None
    assert message.message == "rung 1 runs"
    assert all(find_condition(conditions, states.WAITING) is None for conditions in (goes_on, ends, unasked))
    assert states.is_exhausted(ends)
