"""An informer that reads a list a page at a time: what it holds, and what happens between two pages."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from katib.engine.runtime.informer import Informer, InformerEvent
from katib.engine.runtime.objects import EventType, Key, Kind, Object, ObjectList, ObjectStore
from katib.errors import ExpiredError
from tests.support import memory_store as in_memory
from tests.support.clock import VirtualClock
from tests.support.faulty_store import Call, FaultyStore
from tests.support.stores import WIDGET, changed, memory_store, widget
from tests.support.waiting import eventually


class Decoded(dict[str, Any]):
    """An object fresh from its text, whose life can be followed."""


class PagedStore(FaultyStore):
    """Hands out copies of objects in pages of three, and counts how many of them are alive.

    Attributes:
        between: Called before every page but the first.
        alive: How many objects were alive when each page was asked for.
        in_order: Whether pages say that they come in order of creation.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.between: Callable[[], None] = lambda: None
        self.alive: list[int] = []
        self.lists = 0
        self.in_order = False
        self._given: list[weakref.ref[Decoded]] = []

    def pages(
        self, kind: Kind, namespace: str | None = None, *, labels: Mapping[str, str] | None = None
    ) -> Iterator[ObjectList]:
        for number, page in enumerate(super().pages(kind, namespace, labels=labels)):
            self.alive.append(sum(given() is not None for given in self._given))
            if number:
                self.between()
            yield self._fresh(page)

    def list(self, *arguments: Any, **options: Any) -> ObjectList:
        self.lists += 1
        return super().list(*arguments, **options)

    def _fresh(self, page: ObjectList) -> ObjectList:
        items = tuple(Decoded(obj) for obj in page.items)
        self._given += map(weakref.ref, items)
        return ObjectList(items, page.resource_version, in_order=self.in_order)


class Bench:
    """An informer that keeps of a widget only its size."""

    def __init__(self) -> None:
        self.inner = memory_store(VirtualClock())
        self.store = PagedStore(self.inner)
        self.decoded: list[str] = []
        self.events: list[InformerEvent[int]] = []
        self.informer: Informer[int] = Informer(self.store, WIDGET, self._decode, clock=VirtualClock())
        self.informer.add_handler(self.events.append)

    def _decode(self, obj: Object) -> int:
        self.decoded.append(obj["metadata"]["name"])
        return int(obj["spec"]["size"])

    def create(self, name: str, size: int = 0) -> Object:
        return self.inner.create(widget(name, spec={"size": size}))

    def start(self) -> None:
        self.informer.start()
        assert self.informer.wait_for_sync(10)

    def told(self) -> list[tuple[EventType, str]]:
        return [(event.type, event.key.name) for event in self.events]


@pytest.fixture(autouse=True)
def pages_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "PAGE_SIZE", 3)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.informer.stop()


@pytest.mark.parametrize("in_order", [False, True])
def test_no_page_is_held_while_the_next_one_is_fetched(bench: Bench, *, in_order: bool) -> None:
    bench.store.in_order = in_order
    for number in range(30):
        bench.create(f"w-{number:02}", number)
    bench.start()

    assert tuple(bench.informer.all()) == tuple(range(30))
    assert bench.store.alive == [0] * 10


def test_objects_are_in_order_of_creation_though_pages_are_not(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an API server hands them out: by name, with the second of their creation."""
    stamps = {"a": "2024-05-06T07:08:11Z", "b": "2024-05-06T07:08:09Z", "c": "2024-05-06T07:08:10Z", "d": ""}
    for size, name in enumerate("abcd"):
        bench.create(name, size)
    fresh = bench.store._fresh

    def stamped(page: ObjectList) -> ObjectList:
        items = [
            {**obj, "metadata": {**obj["metadata"], "creationTimestamp": stamps[Key.of(obj).name]}}
            for obj in page.items
        ]
        return fresh(ObjectList(tuple(items), page.resource_version))

    monkeypatch.setattr(bench.store, "_fresh", stamped)
    bench.start()

    assert [event.key.name for event in bench.events] == ["d", "b", "c", "a"]
    assert tuple(bench.informer.all()) == (3, 1, 2, 0)


def test_pages_in_order_fill_an_empty_cache_one_by_one(bench: Bench) -> None:
    bench.store.in_order = True
    known: list[int] = []
    bench.store.between = lambda: known.append(len(bench.informer.all()))
    for number in range(8):
        bench.create(f"w-{number}", number)
    bench.start()

    assert known == [3, 6]
    assert bench.told() == [(EventType.ADDED, f"w-{number}") for number in range(8)]
    assert tuple(bench.informer.all()) == tuple(range(8))


class SteppingEvent(threading.Event):
    """Anyone who waits for it lets one more page come, as if the time was up right after it."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.pages = threading.Semaphore(0)
        self._bench = bench

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        read = self._bench.informer._pages_read
        self.pages.release()
        eventually(lambda: self.is_set() or self._bench.informer._pages_read > read)
        return self.is_set()


def test_a_long_list_is_waited_for_as_long_as_pages_come(bench: Bench) -> None:
    for number in range(12):
        bench.create(f"w-{number}", number)
    synced = bench.informer._synced = SteppingEvent(bench)
    bench.store.between = lambda: synced.pages.acquire() and None
    bench.informer.start()

    assert bench.informer.wait_for_sync(0.0)
    assert len(bench.informer.all()) == 12


def test_a_list_of_which_nothing_more_comes_is_given_up(bench: Bench) -> None:
    gate = threading.Event()
    for number in range(4):
        bench.create(f"w-{number}", number)
    bench.store.between = lambda: gate.wait(60) and None
    bench.informer.start()
    eventually(lambda: bench.informer._pages_read == 1)

    assert not bench.informer.wait_for_sync(0.0)
    gate.set()
    assert bench.informer.wait_for_sync(10)


def test_a_change_between_two_pages_is_told_by_the_watch(bench: Bench) -> None:
    for number in range(4):
        bench.create(f"w-{number}", number)

    def meanwhile() -> None:
        bench.inner.delete(WIDGET, Key("team", "w-0"))
        bench.inner.update(changed(bench.inner.get(WIDGET, Key("team", "w-3")), spec={"size": 33}))
        bench.create("new", 9)

    bench.store.between = meanwhile
    bench.start()

    eventually(lambda: tuple(bench.informer.all()) == (1, 2, 33, 9))
    assert bench.told()[:4] == [(EventType.ADDED, f"w-{number}") for number in range(4)]


@pytest.mark.parametrize(("expiries", "lists"), [(1, 0), (2, 1)], ids=["once", "each time"])
def test_a_list_that_expires_between_two_pages_begins_again_and_doubles_nothing(
    bench: Bench, expiries: int, lists: int
) -> None:
    for number in range(7):
        bench.create(f"w-{number}", number)
    left = [ExpiredError("too old")] * expiries

    def meanwhile() -> None:
        if left:
            bench.inner.delete(WIDGET, Key("team", f"w-{len(left)}"))
            bench.create(f"new-{len(left)}", 10 + len(left))
            raise left.pop()

    bench.store.between = meanwhile
    bench.start()

    gone = set(range(1, expiries + 1))
    expected = [f"w-{number}" for number in range(7) if number not in gone]
    expected += [f"new-{number}" for number in range(expiries, 0, -1)]
    assert bench.told() == [(EventType.ADDED, name) for name in expected]
    assert bench.store.lists == lists


def test_what_did_not_change_is_not_decoded_again_when_the_watch_has_expired(bench: Bench) -> None:
    gate = threading.Event()

    def hold(call: Call) -> BaseException | None:
        if call.verb == "next" and call.before:
            gate.wait(60)
            return ExpiredError("too old")
        return None

    for number in range(6):
        bench.create(f"w-{number}", number)
    bench.start()
    bench.store.fail_on = hold
    bench.create("w-6", 6)  # the watch delivers this one, then meets the fault
    eventually(lambda: bench.told()[6:])
    for recorded in (bench.decoded, bench.events, bench.store.alive):
        recorded.clear()  # type: ignore[attr-defined] # each of them is a list
    bench.inner.delete(WIDGET, Key("team", "w-1"))
    bench.inner.update(changed(bench.inner.get(WIDGET, Key("team", "w-5")), spec={"size": 55}))
    bench.create("new", 9)
    bench.store.fail_on = lambda _call: None
    gate.set()
    eventually(lambda: len(bench.events) == 3)

    assert bench.decoded == ["w-5", "new"]
    assert bench.told() == [(EventType.DELETED, "w-1"), (EventType.MODIFIED, "w-5"), (EventType.ADDED, "new")]
    assert tuple(bench.informer.all()) == (0, 2, 3, 4, 55, 6, 9)
    assert bench.store.alive == [0, 0, 0]
