from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Self

import pytest

from katib.engine.runtime.controller import DONE, Controller, ReconcileResult
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key
from katib.engine.runtime.shared_thread import SharedThread
from katib.engine.runtime.work_queue import WorkQueue
from katib.errors import UnavailableError
from tests.support.clock import VirtualClock
from tests.support.stores import GADGET, WIDGET, memory_store, widget
from tests.support.waiting import eventually


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def thread(clock: VirtualClock) -> Iterator[SharedThread]:
    thread = SharedThread("shared", clock)
    yield thread
    thread.stop()


def noting(seen: list[str], name: str, pause: float | None = None) -> Callable[[], float | None]:
    def turn() -> float | None:
        seen.append(name)
        return pause

    return turn


def test_who_reads_goes_first_and_the_others_in_the_order_in_which_they_were_woken(thread: SharedThread) -> None:
    seen: list[str] = []
    a, b = (thread.participant(noting(seen, name)) for name in "ab")
    reader = thread.participant(noting(seen, "reader"), first=True)
    for participant in (b, a, b, reader):
        participant.wake()
    thread.start()

    eventually(lambda: seen == ["reader", "b", "a"])


def test_a_wake_up_during_a_turn_brings_another_turn(thread: SharedThread) -> None:
    seen: list[int] = []

    def turn() -> None:
        seen.append(len(seen))
        if len(seen) < 3:
            participant.wake()

    participant = thread.participant(turn)
    participant.wake()
    thread.start()

    eventually(lambda: seen == [0, 1, 2])


def test_a_pause_ends_in_time_or_by_a_wake_up(thread: SharedThread, clock: VirtualClock) -> None:
    seen: list[str] = []
    participant = thread.participant(noting(seen, "turn", pause=10.0))
    participant.wake()
    thread.start()
    eventually(lambda: clock.waiting_count == 1)
    clock.advance(9.9)
    assert len(seen) == 1

    clock.advance(0.2)
    eventually(lambda: len(seen) == 2 and clock.waiting_count == 1)
    participant.wake()

    eventually(lambda: len(seen) == 3)


def test_a_turn_that_raises_is_logged_and_goes_on_later_while_the_others_have_theirs(
    thread: SharedThread, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def broken() -> None:
        seen.append("broken")
        raise ValueError("bug")

    for participant in (thread.participant(broken), thread.participant(noting(seen, "fine"))):
        participant.wake()
    thread.start()
    eventually(lambda: seen == ["broken", "fine"] and clock.waiting_count == 1)
    assert [record.getMessage() for record in caplog.records] == ["Turn failed"]

    clock.advance(1.0)
    eventually(lambda: seen == ["broken", "fine", "broken"])


def test_leaving_waits_for_the_turn_under_way_and_no_further_one_comes(thread: SharedThread) -> None:
    entered, release, seen = threading.Event(), threading.Event(), []

    def turn() -> float:
        entered.set()
        assert release.wait(60)
        seen.append("done")
        return 0.0

    participant = thread.participant(turn)
    participant.wake()
    thread.start()
    assert entered.wait(60)
    leaving = threading.Thread(target=participant.leave, daemon=True)
    leaving.start()
    participant.wake()
    assert leaving.is_alive()
    release.set()
    leaving.join(60)

    participant.wake()
    last: list[str] = []
    thread.participant(noting(last, "last")).wake()
    eventually(lambda: last)
    assert seen == ["done"]


def test_who_leaves_in_its_own_turn_does_not_wait_for_itself(thread: SharedThread) -> None:
    seen: list[str] = []

    def turn() -> float:
        seen.append("turn")
        participant.leave()
        return 0.0

    participant = thread.participant(turn)
    participant.wake()
    thread.start()
    last: list[str] = []
    eventually(lambda: seen)
    thread.participant(noting(last, "last")).wake()

    eventually(lambda: last)
    assert seen == ["turn"]


def test_a_thread_that_never_started_stops(thread: SharedThread) -> None:
    thread.participant(lambda: None).wake()
    thread.stop()
    thread.stop()


def test_controllers_and_informers_share_it_and_every_change_is_reconciled_on_it(clock: VirtualClock) -> None:
    store = memory_store()
    thread = SharedThread("shared", clock)
    seen: list[tuple[str, bool, str]] = []
    widgets, gadgets = (Informer(store, kind, dict, clock=clock, thread=thread) for kind in (WIDGET, GADGET))

    def reconcile(key: Key) -> ReconcileResult:
        seen.append((key.name, widgets.get(key) is not None, threading.current_thread().name))
        if key.name == "w":
            store.create(widget("made", kind=GADGET))
            return DONE
        return ReconcileResult(requeue_after_seconds=5.0) if len(seen) == 2 else DONE

    controllers = [
        Controller(name, reconcile, WorkQueue(clock), workers=2, thread=thread) for name in ("widgets", "gadgets")
    ]
    for informer, controller in zip((widgets, gadgets), controllers, strict=True):
        informer.add_handler(lambda event, queue=controller.queue: queue.add(event.key))  # type: ignore[misc]
    thread.start()
    for informer in (widgets, gadgets):
        informer.start()
    for controller in controllers:
        controller.start()
    store.create(widget("w"))
    eventually(lambda: len(seen) == 2 and clock.waiting_count == 1)
    clock.advance(5.0)
    eventually(lambda: len(seen) == 3)
    for controller in controllers:
        controller.stop()
    for informer in (gadgets, widgets):
        informer.stop()
    thread.stop()

    assert seen == [("w", True, "shared"), ("made", False, "shared"), ("made", False, "shared")]


def test_a_watch_that_tells_nothing_is_refused(thread: SharedThread, caplog: pytest.LogCaptureFixture) -> None:
    class Silent:
        """A watch that cannot tell."""

        def __init__(self, inner: object) -> None:
            self._inner = inner

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

    store = memory_store()
    watch = store.watch
    store.watch = lambda kind, since: Silent(watch(kind, since))  # type: ignore[assignment,method-assign,return-value]
    informer = Informer(store, WIDGET, dict, thread=thread)
    thread.start()
    informer.start()

    eventually(lambda: any("Watch failed" in record.getMessage() for record in caplog.records))
    informer.stop()


def test_a_call_of_another_thread_is_made_between_turns_and_returns_its_value(thread: SharedThread) -> None:
    thread.start()

    assert thread.call(lambda: threading.current_thread().name) == "shared"
    assert thread.call(lambda: thread.call(lambda: 1)) == 1
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 // 0)


def test_a_call_that_is_not_made_before_the_end_is_refused(thread: SharedThread) -> None:
    failures: list[Exception] = []

    def call() -> None:
        try:
            thread.call(lambda: None)
        except UnavailableError as error:
            failures.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    eventually(lambda: bool(thread._calls))  # it waits: the thread is not started
    thread.stop()
    caller.join(10)
    call()

    assert [str(error) for error in failures] == [
        "the controllers are being stopped; try again when they are started"
    ] * 2
