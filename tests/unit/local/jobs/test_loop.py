from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from katib.places.machine.pods.loop import Loop
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture(name="loop")
def _loop() -> Iterator[Loop]:
    loop = Loop()
    loop.start()
    yield loop
    loop.stop()


def test_calls_are_made_in_order_on_one_thread(loop: Loop) -> None:
    calls: list[tuple[int, int]] = []
    done = threading.Event()
    for number in range(100):
        loop.call_soon(lambda number=number: calls.append((number, threading.get_ident())))
    loop.call_soon(done.set)

    assert done.wait(PATIENCE_SECONDS)
    assert [number for number, _ in calls] == list(range(100))
    assert len({thread for _, thread in calls}) == 1


def test_timers_fire_in_order_of_their_time_and_not_when_cancelled(loop: Loop) -> None:
    fired: list[str] = []
    done = threading.Event()

    def plan() -> None:
        loop.call_later(0.02, lambda: (fired.append("late"), done.set()))
        loop.call_later(0.01, lambda: fired.append("early"))
        loop.call_later(0.005, lambda: fired.append("never")).cancel()

    loop.call_soon(plan)

    assert done.wait(PATIENCE_SECONDS)
    assert fired == ["early", "late"]


def test_a_failing_call_is_logged_and_stops_no_other(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    loop.call_soon(lambda: 1 // 0)
    loop.call_soon(done.set)

    assert done.wait(PATIENCE_SECONDS)
    assert "Call failed" in caplog.text


def test_a_readable_descriptor_is_served_until_it_is_unwatched(loop: Loop) -> None:
    read, write = os.pipe()
    got: list[bytes] = []
    done = threading.Event()

    def readable() -> None:
        got.append(os.read(read, 1))
        if len(got) == 2:
            loop.unwatch(read)
            done.set()

    loop.call_soon(lambda: loop.watch(read, readable))
    os.write(write, b"abc")

    assert done.wait(PATIENCE_SECONDS)
    assert got == [b"a", b"b"]
    os.close(read)
    os.close(write)


def test_calls_after_the_stop_are_dropped() -> None:
    loop = Loop()
    loop.start()
    loop.stop()

    loop.call_soon(lambda: pytest.fail("called after the stop"))
