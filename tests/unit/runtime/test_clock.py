from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from katib.engine.runtime.clock import SteadyTime, SystemClock
from tests.support.clock import VirtualClock
from tests.support.waiting import eventually


def test_the_system_clock_is_aware_and_never_runs_backwards() -> None:
    clock = SystemClock()

    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()


def test_a_system_wait_ends_when_the_time_is_up() -> None:
    clock, condition = SystemClock(), threading.Condition()
    began = clock.monotonic()
    with condition:
        clock.wait(condition, 0.01)

    assert clock.monotonic() - began >= 0.009


def test_virtual_time_passes_only_when_told() -> None:
    clock = VirtualClock(datetime(2024, 1, 1, tzinfo=UTC))
    clock.advance(90)

    assert clock.now() == datetime(2024, 1, 1, 0, 1, 30, tzinfo=UTC)
    assert clock.monotonic() == 90
    assert clock.now() - timedelta(seconds=90) == datetime(2024, 1, 1, tzinfo=UTC)


class _SetClock(VirtualClock):
    """A clock whose wall time somebody sets."""

    jump = timedelta()

    def now(self) -> datetime:
        return super().now() + self.jump


def test_steady_time_does_not_follow_a_wall_clock_that_is_set() -> None:
    clock = _SetClock(datetime(2024, 1, 1, tzinfo=UTC))
    steady = SteadyTime(clock)
    clock.jump = timedelta(hours=3)
    clock.advance(90)

    assert steady.now() == datetime(2024, 1, 1, 0, 1, 30, tzinfo=UTC)


def test_a_virtual_wait_ends_at_its_moment() -> None:
    clock, condition = VirtualClock(), threading.Condition()
    woken = []

    def wait() -> None:
        with condition:
            clock.wait(condition, 10)
        woken.append(clock.monotonic())

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    eventually(lambda: clock.waiting_count == 1)
    clock.advance(9)
    assert woken == []
    clock.advance(1)
    thread.join(60)

    assert woken == [10]


def test_a_virtual_wait_for_no_time_returns_at_once() -> None:
    clock, condition = VirtualClock(), threading.Condition()
    with condition:
        clock.wait(condition, 0)
        clock.wait(condition, -1)

    assert clock.waiting_count == 0
