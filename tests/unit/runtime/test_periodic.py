"""A thread that looks now and then, and at once when woken."""

from __future__ import annotations

import pytest

from katib.engine.runtime.periodic import PeriodicTasks
from katib.errors import UnavailableError
from tests.support.clock import VirtualClock
from tests.support.waiting import eventually


def test_all_looks_go_on_when_one_of_them_fails_and_a_round_begins_when_it_is_due_or_woken() -> None:
    clock, rounds = VirtualClock(), [0, 0]

    def failing() -> None:
        rounds[0] += 1
        raise UnavailableError("away") if rounds[0] % 2 else ZeroDivisionError

    def working() -> None:
        rounds[1] += 1

    periodic = PeriodicTasks("test", (failing, working), 5.0, clock, complaint="not done")
    periodic.start()
    try:
        eventually(lambda: clock.waiting_count == 1)
        before = list(rounds)
        clock.advance(5.0)
        eventually(lambda: rounds == [1, 1])
        periodic.wake()
        eventually(lambda: rounds == [2, 2])
    finally:
        periodic.stop()

    assert before == [0, 0]


def test_woken_before_the_start_it_looks_at_once() -> None:
    looks: list[int] = []
    periodic = PeriodicTasks("test", [lambda: looks.append(1)], 5.0, VirtualClock(), complaint="not done")
    periodic.wake()
    periodic.start()
    try:
        eventually(lambda: looks)
    finally:
        periodic.stop()


def test_one_that_was_never_started_can_be_stopped() -> None:
    PeriodicTasks("test", [], 5.0, VirtualClock(), complaint="not done").stop()


def test_the_same_error_is_said_once_and_again_after_a_success(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[Exception | None] = [UnavailableError(text) for text in ("a", "a", "b")]
    errors += [None, UnavailableError("b"), ZeroDivisionError()]

    def look() -> None:
        error = errors.pop(0)
        if error is not None:
            raise error

    periodic = PeriodicTasks("test", [look], 5.0, VirtualClock(), complaint="not done")
    while errors:
        periodic.look()

    assert [record.getMessage() for record in caplog.records] == [
        "not done: a",
        "not done: b",
        "not done: b",
        "not done",
    ]
