"""The work queue, one behavior at a time. Its laws under any sequence of calls are in tests/property."""

from __future__ import annotations

import threading

import pytest

from katib.engine.runtime.work_queue import WorkQueue
from katib.errors import Backoff
from tests.support.clock import VirtualClock
from tests.support.waiting import eventually


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def queue(clock: VirtualClock) -> WorkQueue[str]:
    return WorkQueue(clock)


def take_all(queue: WorkQueue[str]) -> list[str]:
    keys = []
    while (key := queue.get(0)) is not None:
        keys.append(key)
        queue.done(key)
    return keys


def test_keys_come_out_in_the_order_they_were_added(queue: WorkQueue[str]) -> None:
    for key in "cab":
        queue.add(key)

    assert take_all(queue) == ["c", "a", "b"]


def test_adds_of_a_waiting_key_coalesce(queue: WorkQueue[str]) -> None:
    for key in "aab":
        queue.add(key)

    assert len(queue) == 2
    assert take_all(queue) == ["a", "b"]


def test_a_key_added_while_it_is_processed_waits_for_done(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert queue.get(0) == "a"
    queue.add("a")
    queue.add("a")

    assert queue.get(0) is None
    queue.done("a")
    assert take_all(queue) == ["a"]


def test_a_delayed_key_comes_at_its_moment_and_not_before(queue: WorkQueue[str], clock: VirtualClock) -> None:
    queue.add_after("a", 5)
    clock.advance(4.9)
    assert take_all(queue) == []

    clock.advance(0.2)
    assert take_all(queue) == ["a"]
    clock.advance(60)
    assert take_all(queue) == []


def test_of_several_delays_the_earliest_counts(queue: WorkQueue[str], clock: VirtualClock) -> None:
    queue.add_after("a", 5)
    queue.add_after("a", 1)
    queue.add_after("a", 9)
    clock.advance(1)
    assert take_all(queue) == ["a"]

    clock.advance(60)
    assert take_all(queue) == []


def test_a_delayed_key_that_was_cancelled_does_not_come(queue: WorkQueue[str], clock: VirtualClock) -> None:
    queue.add("now")
    queue.add_after("now", 1)
    queue.add_after("later", 2)
    queue.cancel("now")

    assert take_all(queue) == ["now"]
    assert queue.seconds_to_next() == 2
    clock.advance(2)
    assert take_all(queue) == ["later"]


@pytest.mark.parametrize("seconds", [0, -1])
def test_no_delay_is_now(queue: WorkQueue[str], seconds: float) -> None:
    queue.add_after("a", seconds)

    assert take_all(queue) == ["a"]


def test_back_off_doubles_up_to_a_cap_and_starts_anew_after_success(clock: VirtualClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock, retry=Backoff(1, 6))

    assert [queue.add_rate_limited("a") for _ in range(5)] == [1, 2, 4, 6, 6]
    assert queue.failure_count("a") == 5
    assert queue.add_rate_limited("b") == 1
    queue.forget("a")
    assert queue.failure_count("a") == 0
    assert queue.add_rate_limited("a") == 1


def test_the_first_retry_is_after_5_ms_and_the_last_every_30_s(queue: WorkQueue[str]) -> None:
    delays = [queue.add_rate_limited("a") for _ in range(2000)]

    assert delays[:3] == [0.005, 0.01, 0.02]
    assert delays[-1] == 30


def test_get_returns_nothing_when_its_time_is_up(queue: WorkQueue[str], clock: VirtualClock) -> None:
    answers: list[str | None] = ["unset"]
    worker = threading.Thread(target=lambda: answers.append(queue.get(3)), daemon=True)
    worker.start()
    eventually(lambda: clock.waiting_count == 1)
    clock.advance(3)
    worker.join(60)

    assert answers == ["unset", None]


def test_a_worker_that_waits_is_woken_by_a_delayed_key(queue: WorkQueue[str], clock: VirtualClock) -> None:
    answers: list[str | None] = []
    worker = threading.Thread(target=lambda: answers.append(queue.get()), daemon=True)
    worker.start()
    queue.add_after("a", 3)
    eventually(lambda: clock.waiting_count == 1)
    clock.advance(3)
    worker.join(60)

    assert answers == ["a"]


def test_when_the_worker_that_kept_the_time_leaves_another_keeps_it() -> None:
    """On the real clock: the virtual one wakes every waiter when time passes, and so would hide the omission."""
    queue: WorkQueue[str] = WorkQueue()
    answers: list[str | None] = []
    workers = [threading.Thread(target=lambda: answers.append(queue.get()), daemon=True) for _ in range(2)]
    for worker in workers:
        worker.start()
    eventually(lambda: len(queue._condition._waiters) == 2)  # type: ignore[attr-defined] # both wait without a deadline
    queue.add_after("one", 0.01)
    queue.add_after("two", 0.03)
    eventually(lambda: len(answers) == 2)
    for worker in workers:
        worker.join(60)

    assert answers == ["one", "two"]


def test_shutting_down_wakes_every_worker_and_drops_what_waits(queue: WorkQueue[str], clock: VirtualClock) -> None:
    answers: list[str | None] = []
    workers = [threading.Thread(target=lambda: answers.append(queue.get()), daemon=True) for _ in range(3)]
    for worker in workers:
        worker.start()
    queue.add_after("late", 1)
    queue.shut_down()
    queue.shut_down()
    for worker in workers:
        worker.join(60)
    queue.add("a")
    queue.add_after("a", 1)
    clock.advance(5)

    assert answers == [None, None, None]
    assert queue.is_shut_down
    assert queue.get() is None
    assert len(queue) == 0


def test_done_after_shutting_down_is_fine(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert queue.get(0) == "a"
    queue.add("a")
    queue.shut_down()
    queue.done("a")

    assert queue.get() is None


def test_many_workers_share_many_keys_without_meeting() -> None:
    queue: WorkQueue[int] = WorkQueue()
    lock = threading.Lock()
    busy: set[int] = set()
    counts: dict[int, int] = {}
    clashes: list[int] = []

    def work() -> None:
        while (key := queue.get()) is not None:
            with lock:
                if key in busy:
                    clashes.append(key)
                busy.add(key)
                counts[key] = counts.get(key, 0) + 1
                again = counts[key] < 20
            if again:
                queue.add(key)
            with lock:
                busy.discard(key)
            queue.done(key)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(4)]
    for worker in workers:
        worker.start()
    for key in range(10):
        queue.add(key)
    eventually(lambda: counts == dict.fromkeys(range(10), 20))
    queue.shut_down()
    for worker in workers:
        worker.join(60)

    assert clashes == []


def test_an_entry_that_was_overtaken_does_not_come_back_with_a_later_one_of_the_same_moment(
    clock: VirtualClock, queue: WorkQueue[str]
) -> None:
    queue.add_after("c", 5)
    queue.add_after("c", 1)
    clock.advance(1)
    assert queue.get(0) == "c"
    queue.done("c")

    queue.add_after("a", 4)
    queue.add_after("c", 4)
    clock.advance(4)

    assert [queue.get(0), queue.get(0)] == ["a", "c"]
