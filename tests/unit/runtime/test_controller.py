from __future__ import annotations

import logging
import threading

import pytest

from katib.engine.runtime.controller import DONE, Controller, Manager, ReconcileResult, current_reconcile
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Object
from katib.engine.runtime.work_queue import WorkQueue
from katib.errors import ConflictError, FieldError, InvalidError, TerminalError, UnavailableError
from tests.support.clock import VirtualClock
from tests.support.faulty_store import FaultyStore
from tests.support.golden import Golden
from tests.support.stores import GADGET, WIDGET, memory_store, widget
from tests.support.waiting import eventually

A = Key("team", "a")


class Scripted:
    """A reconciler that does what it is told, one step per call, and then is done."""

    def __init__(self, *steps: ReconcileResult | Exception) -> None:
        self.steps = list(steps)
        self.seen: list[Key] = []

    def __call__(self, key: Key) -> ReconcileResult:
        self.seen.append(key)
        step = self.steps.pop(0) if self.steps else DONE
        if isinstance(step, Exception):
            raise step
        return step


class Bench:
    """A controller that is stepped by hand, with a clock that stands still."""

    def __init__(self, *steps: ReconcileResult | Exception) -> None:
        self.clock = VirtualClock()
        self.reconcile = Scripted(*steps)
        self.failures: list[tuple[Key, Exception]] = []
        self.queue: WorkQueue[Key] = WorkQueue(self.clock)
        self.controller = Controller("widgets", self.reconcile, self.queue, on_error=self.note)

    def note(self, key: Key, error: Exception) -> None:
        self.failures.append((key, error))

    def run(self, seconds: float = 0.0) -> int:
        """Let time pass and reconcile what is due; return how often."""
        self.clock.advance(seconds)
        count = 0
        while self.queue:
            self.controller.process_next(0)
            count += 1
        return count


def test_a_key_is_reconciled_once_per_add() -> None:
    bench = Bench()
    bench.queue.add(A)

    assert bench.run() == 1
    assert bench.reconcile.seen == [A]
    assert bench.run(3600) == 0


def test_a_result_may_ask_to_look_again_later() -> None:
    bench = Bench(ReconcileResult(requeue_after_seconds=10))
    bench.queue.add(A)

    assert bench.run() == 1
    assert bench.run(9.9) == 0
    assert bench.run(0.2) == 1


@pytest.mark.parametrize(
    "error",
    [ConflictError("behind"), UnavailableError("away"), ValueError("bug")],
    ids=lambda error: type(error).__name__,
)
def test_what_may_pass_is_tried_again_with_back_off(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(error, error)
    bench.queue.add(A)

    assert bench.run() == 1
    assert bench.run(0.0049) == 0
    assert bench.run(0.0002) == 1
    assert bench.run(0.0099) == 0
    assert bench.run(0.0002) == 1
    assert bench.queue.failure_count(A) == 0


@pytest.mark.parametrize(
    "error",
    [TerminalError("never"), InvalidError([FieldError("spec", "wrong", "fix it", "x")])],
    ids=lambda error: type(error).__name__,
)
def test_what_cannot_pass_is_not_tried_again(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(error)
    bench.queue.add(A)

    assert bench.run() == 1
    assert bench.run(3600) == 0
    assert bench.failures == [(A, error)]


def test_a_conflict_is_nobodys_fault(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(ConflictError("behind"))
    bench.queue.add(A)
    bench.run(1)

    assert bench.failures == []
    assert caplog.records == []


@pytest.mark.parametrize(
    ("error", "level", "message"),
    [
        pytest.param(UnavailableError("away"), logging.WARNING, "Reconcile postponed: away", id="unavailable"),
        pytest.param(TerminalError("never"), logging.ERROR, "Reconcile failed for good: never", id="terminal"),
        pytest.param(ValueError("bug"), logging.ERROR, "Reconcile failed", id="bug"),
    ],
)
def test_a_failure_is_logged_once_with_where_and_which(
    error: Exception, level: int, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(DONE, error)
    bench.queue.add(A)
    bench.run()
    bench.queue.add(A)
    bench.run()

    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (level, message)
    fields = vars(record)
    assert (fields["controller"], fields["key"], fields["reconcile_id"]) == ("widgets", "team/a", "widgets-2")
    assert (record.exc_info is not None) == isinstance(error, ValueError)
    assert bench.failures == [(A, error)]


@pytest.mark.parametrize("end", [DONE, ConflictError("behind"), ValueError("bug")], ids=["done", "conflict", "bug"])
def test_current_reconcile_is_known_during_it_and_unknown_after_it(end: ReconcileResult | Exception) -> None:
    seen = []

    def reconcile(_key: Key) -> ReconcileResult:
        seen.append(dict(current_reconcile()))
        if isinstance(end, Exception):
            raise end
        return end

    controller = Controller("widgets", reconcile)
    controller.queue.add(A)
    controller.process_next()

    assert seen == [{"controller": "widgets", "key": "team/a", "reconcile_id": "widgets-1"}]
    assert current_reconcile() == {}


def test_a_broken_error_hook_ends_no_worker(caplog: pytest.LogCaptureFixture, golden: Golden) -> None:
    def broken(key: Key, error: Exception) -> None:
        raise RuntimeError(key)

    queue: WorkQueue[Key] = WorkQueue(VirtualClock())
    controller = Controller("widgets", Scripted(TerminalError("never")), queue, on_error=broken)
    queue.add(A)

    controller.process_next(0)

    golden([record.getMessage() for record in caplog.records])


def test_a_slow_key_stalls_no_other_when_there_are_workers() -> None:
    release, seen = threading.Event(), []

    def reconcile(key: Key) -> ReconcileResult:
        seen.append(key)
        if key == A:
            assert release.wait(60)
        return DONE

    controller = Controller("widgets", reconcile, workers=2)
    controller.start()
    controller.queue.add(A)
    controller.queue.add(Key("team", "b"))
    eventually(lambda: len(seen) == 2)
    release.set()
    controller.stop()


def test_stopping_waits_for_the_running_reconcile_and_drops_the_rest() -> None:
    entered, release, finished = threading.Event(), threading.Event(), []

    def reconcile(key: Key) -> ReconcileResult:
        entered.set()
        assert release.wait(60)
        finished.append(key)
        return DONE

    controller = Controller("widgets", reconcile)
    controller.start()
    controller.queue.add(A)
    controller.queue.add(Key("team", "b"))
    assert entered.wait(60)
    stopper = threading.Thread(target=controller.stop, daemon=True)
    stopper.start()
    eventually(lambda: controller.queue.is_shut_down)
    assert finished == []
    release.set()
    stopper.join(60)

    assert finished == [A]


def test_a_controller_that_never_started_stops() -> None:
    Controller("widgets", Scripted()).stop()


def same(obj: Object) -> Object:
    return obj


def test_controllers_start_when_every_cache_is_full_and_end_with_all_threads() -> None:
    store = memory_store()
    store.create(widget("w"))
    store.create(widget("g", kind=GADGET))
    widgets, gadgets = Informer(store, WIDGET, same), Informer(store, GADGET, same)
    seen = []

    def reconcile(key: Key) -> ReconcileResult:
        seen.append((key.name, widgets.has_synced() and gadgets.has_synced()))
        return DONE

    controller = Controller("widgets", reconcile, workers=2)
    widgets.add_handler(lambda event: controller.queue.add(event.key))
    threads_before = set(threading.enumerate())
    with Manager([widgets, gadgets], [controller]):
        eventually(lambda: seen)
        store.create(widget("later"))
        eventually(lambda: len(seen) == 2)

    assert seen == [("w", True), ("later", True)]
    assert set(threading.enumerate()) <= threads_before


def test_a_store_that_stays_away_fails_the_start_and_leaves_no_threads(
    caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    store = FaultyStore(memory_store(), lambda _call: UnavailableError("away"))
    reconciled: list[Key] = []

    def reconcile(key: Key) -> ReconcileResult:
        reconciled.append(key)
        return DONE

    controller = Controller("widgets", reconcile)
    threads_before = set(threading.enumerate())
    manager = Manager([Informer(store, WIDGET, same)], [controller], sync_timeout_seconds=0.02)

    with golden.raises(UnavailableError):
        manager.start()

    assert set(threading.enumerate()) <= threads_before
    assert reconciled == []
