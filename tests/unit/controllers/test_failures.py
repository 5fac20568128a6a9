"""Failures in a row: how long to wait, and when to give up. Time passes only when told."""

from __future__ import annotations

import pytest

from katib.controllers.settings import ControllerSettings
from katib.controllers.suggestion.failures import Failures
from katib.runtime.objects import Key
from katib.runtime.testing import VirtualClock

DEMO, OTHER = Key("default", "demo"), Key("default", "other")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def failures(clock: VirtualClock) -> Failures:
    return Failures(clock, ControllerSettings(service_attempts=3, service_patience_seconds=10))


def test_without_a_failure_nothing_waits(failures: Failures) -> None:
    assert failures.wait_seconds(DEMO) == 0


def test_delays_double_from_fifty_milliseconds_to_fifteen_seconds(failures: Failures) -> None:
    delays = [failures.add(DEMO, "down").delay_seconds for _ in range(12)]

    assert delays == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 15.0, 15.0, 15.0]


def test_a_streak_of_any_length_has_a_delay(failures: Failures) -> None:
    for _ in range(2000):
        streak = failures.add(DEMO, "down")

    assert streak.delay_seconds == 15.0


def test_the_next_attempt_waits_for_its_moment(failures: Failures, clock: VirtualClock) -> None:
    failures.add(DEMO, "down")
    assert failures.wait_seconds(DEMO) == pytest.approx(0.05)
    clock.advance(0.03)
    assert failures.wait_seconds(DEMO) == pytest.approx(0.02)
    clock.advance(1)

    assert failures.wait_seconds(DEMO) == 0


def test_it_is_hopeless_after_many_failures_for_a_long_time(failures: Failures, clock: VirtualClock) -> None:
    streak = failures.add(DEMO, "one")
    clock.advance(20)
    assert not failures.is_hopeless(streak)  # long, but few
    failures.add(DEMO, "two")
    streak = failures.add(DEMO, "three")

    assert failures.is_hopeless(streak)
    assert (streak.count, streak.error) == (3, "three")


def test_many_failures_within_a_moment_are_not_the_end(failures: Failures, clock: VirtualClock) -> None:
    for _ in range(50):
        streak = failures.add(DEMO, "down")
    assert not failures.is_hopeless(streak)
    clock.advance(10)

    assert failures.is_hopeless(streak)


def test_a_success_starts_anew(failures: Failures, clock: VirtualClock) -> None:
    failures.add(DEMO, "down")
    clock.advance(30)
    failures.clear(DEMO)
    assert failures.wait_seconds(DEMO) == 0
    streak = failures.add(DEMO, "down")

    assert (streak.count, streak.since, streak.delay_seconds) == (1, 30.0, 0.05)


def test_objects_fail_apart(failures: Failures) -> None:
    failures.add(DEMO, "down")

    assert failures.wait_seconds(OTHER) == 0
    assert failures.add(OTHER, "down").count == 1
