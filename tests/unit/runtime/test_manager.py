from __future__ import annotations

import threading

import pytest

from katib.engine.runtime.controller import DONE, Controller, ReconcileResult
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.manager import Manager
from katib.engine.runtime.objects import Key, Object
from katib.errors import UnavailableError
from tests.support.faulty_store import FaultyStore
from tests.support.golden import Golden
from tests.support.stores import GADGET, WIDGET, memory_store, widget
from tests.support.waiting import eventually


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
