"""Calls under way: asked once, answered once, never waited for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from katib.engine.controllers.calls import PendingCalls, then
from katib.engine.runtime.objects import Key
from katib.errors import UnavailableError

DEMO = Key("default", "demo")


class Service:
    """Hands out a new unanswered future for each call."""

    def __init__(self) -> None:
        self.calls: list[Future[Any]] = []

    def __call__(self) -> Future[Any]:
        self.calls.append(Future())
        return self.calls[-1]


@pytest.fixture
def woken() -> list[Key]:
    return []


@pytest.fixture
def calls(woken: list[Key]) -> PendingCalls:
    return PendingCalls(woken.append)


def test_asking_again_for_the_same_starts_no_second_call(calls: PendingCalls) -> None:
    service = Service()
    first = calls.ask(DEMO, "validate", service)

    assert calls.ask(DEMO, "validate", service) is first
    assert len(service.calls) == 1


def test_an_answer_wakes_the_controller_and_stays_until_it_was_used(calls: PendingCalls, woken: list[Key]) -> None:
    service = Service()
    future = calls.ask(DEMO, 1, service)
    assert woken == []
    future.set_result("answer")

    assert woken == [DEMO]
    assert calls.ask(DEMO, 1, service).result() == "answer"
    calls.finish(DEMO)
    assert not calls.ask(DEMO, 1, service).done()
    assert len(service.calls) == 2


def test_an_error_wakes_the_controller_too(calls: PendingCalls, woken: list[Key]) -> None:
    calls.ask(DEMO, 1, Service()).set_exception(UnavailableError("gone"))

    assert woken == [DEMO]


def test_a_call_that_is_answered_at_once_still_wakes(calls: PendingCalls, woken: list[Key]) -> None:
    calls.ask(DEMO, 1, lambda: _done("now"))

    assert woken == [DEMO]


def test_an_unfinished_call_for_something_else_is_returned_in_its_place(calls: PendingCalls) -> None:
    service = Service()
    first = calls.ask(DEMO, "validate", service)

    assert calls.ask(DEMO, "round", service) is first
    assert calls.purpose_of(DEMO) == "validate"


def test_a_finished_call_for_something_else_is_dropped(calls: PendingCalls) -> None:
    service = Service()
    calls.ask(DEMO, "validate", service).set_result(None)

    assert not calls.ask(DEMO, "round", service).done()
    assert calls.purpose_of(DEMO) == "round"


def test_objects_do_not_share_calls(calls: PendingCalls) -> None:
    other = Key("default", "other")

    assert calls.ask(DEMO, 1, Service()) is not calls.ask(other, 1, Service())
    calls.finish(DEMO)
    assert (calls.purpose_of(DEMO), calls.purpose_of(other)) == (None, 1)


def test_finishing_cancels_what_nobody_wants_any_more(calls: PendingCalls) -> None:
    future = calls.ask(DEMO, 1, Service())
    calls.finish(DEMO)

    assert future.cancelled()
    calls.finish(DEMO)


def test_a_call_that_cannot_be_started_leaves_nothing_behind(calls: PendingCalls) -> None:
    def fail() -> Future[Any]:
        raise UnavailableError("no route")

    with pytest.raises(UnavailableError):
        calls.ask(DEMO, 1, fail)
    assert calls.purpose_of(DEMO) is None


# --- then -------------------------------------------------------------------------------------------------------------


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def _broken(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def test_the_second_call_starts_with_the_answer_of_the_first() -> None:
    first, second = Service()(), Service()()
    given: list[Any] = []

    def follow(value: Any) -> Future[Any]:
        given.append(value)
        return second

    result = then(first, follow)
    assert given == []
    first.set_result("rules")
    assert given == ["rules"]
    assert not result.done()
    second.set_result("assignments")

    assert result.result(0) == "assignments"


def _raise(_value: Any) -> Future[Any]:
    raise UnavailableError("cannot be asked")


@pytest.mark.parametrize(
    ("first", "follow", "words"),
    [
        pytest.param(_broken(UnavailableError("first")), _done, "first", id="the first fails"),
        pytest.param(_done(1), lambda _: _broken(UnavailableError("second")), "second", id="the second fails"),
        pytest.param(_done(1), _raise, "cannot be asked", id="the second cannot be started"),
    ],
)
def test_either_error_is_the_error(first: Future[Any], follow: Callable[[Any], Future[Any]], words: str) -> None:
    with pytest.raises(UnavailableError, match=words):
        then(first, follow).result(0)


def test_an_answer_that_nobody_wants_any_more_is_dropped_quietly() -> None:
    first = Service()()
    result = then(first, _done)
    result.cancel()
    first.set_result(1)

    assert result.cancelled()


@pytest.mark.parametrize("which", [0, 1], ids=["first", "second"])
def test_a_call_that_is_cancelled_underneath_is_an_error_and_no_wait_for_ever(which: int) -> None:
    inner: list[Future[Any]] = [Future(), Future()]
    result = then(inner[0], lambda _: inner[1])
    if which == 1:
        inner[0].set_result("rules")
    inner[which].cancel()

    with pytest.raises(UnavailableError, match="cancelled"):
        result.result(0)
