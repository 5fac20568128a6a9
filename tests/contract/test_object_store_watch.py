"""What every object store promises to those who watch it, and to many at once. Each test runs on each store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from katib.engine.databases.sqlite import open_database
from katib.engine.runtime.objects import EventType, Key, ObjectStore, WatchEvent
from katib.engine.stores.sql import SqlStore
from katib.errors import AlreadyExistsError, ConflictError, ExpiredError
from tests.support.object_stores import BackDoor, Home
from tests.support.stores import (
    GADGET,
    STATUS_KINDS,
    WIDGET,
    changed,
    drain,
    memory_store,
    names,
    owned_by,
    widget,
    with_metadata,
)


def test_a_watch_tells_every_later_change_of_its_kind_in_order(home: Home) -> None:
    store = home.store
    store.create(widget("before"))
    since = store.list(WIDGET).resource_version
    with store.watch(WIDGET, since) as watch:
        made = store.create(widget("a"))
        store.create(widget("other", kind=GADGET))
        after = store.update(changed(made, spec={"x": 1}))
        ready = store.update_status(changed(after, status={"ready": True}))
        store.delete(WIDGET, Key("team", "a"))

        events = home.drained(watch, 4)

    assert [event.type for event in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert [event.object for event in events[:3]] == [made, after, ready]
    revisions = [int(since)] + [int(event.resource_version) for event in events]
    assert revisions == sorted(set(revisions))
    assert with_metadata(events[3].object, resourceVersion="") == with_metadata(ready, resourceVersion="")


def test_a_watch_starts_where_it_is_told(home: Home) -> None:
    store = home.store
    store.create(widget("a"))
    second = store.create(widget("b"))
    store.create(widget("c"))
    with store.watch(WIDGET, second["metadata"]["resourceVersion"]) as watch:
        store.create(widget("d"))

        assert [event.object["metadata"]["name"] for event in home.drained(watch, 2)] == ["c", "d"]


def test_a_watch_sees_garbage_go_after_its_owner_and_a_mark_as_a_change(home: Home) -> None:
    store = home.store
    top = store.create(widget("top", kind=GADGET))
    store.create(widget("plain", ownerReferences=owned_by(top)))
    store.create(widget("held", ownerReferences=owned_by(top), finalizers=["one"]))
    since = store.list(WIDGET).resource_version
    with store.watch(WIDGET, since) as watch, store.watch(GADGET, since) as owners:
        store.delete(GADGET, Key("team", "top"))

        seen = {event.object["metadata"]["name"]: event for event in home.drained(watch, 2)}
        (owner_gone,) = home.drained(owners, 1)

    gone, marked = seen["plain"], seen["held"]
    assert (gone.type, marked.type) == (EventType.DELETED, EventType.MODIFIED)
    assert int(owner_gone.resource_version) < min(int(gone.resource_version), int(marked.resource_version))
    assert home.is_kubernetes or list(seen) == ["plain", "held"]  # its collector works on several at once


def test_the_last_finalizer_shows_as_a_deletion_with_the_final_state(home: Home) -> None:
    store = home.store
    store.create(widget("a", finalizers=["one"]))
    store.delete(WIDGET, Key("team", "a"))
    waiting = store.get(WIDGET, Key("team", "a"))
    with store.watch(WIDGET, store.list(WIDGET).resource_version) as watch:
        last = store.update(with_metadata(waiting, finalizers=[]))

        (event,) = home.drained(watch, 1)

    assert event.type is EventType.DELETED
    if (
        home.is_kubernetes and not home.is_ours
    ):  # it tells the state before the finalizer went, at the revision of the deletion
        last = with_metadata(waiting, resourceVersion=event.resource_version)
    assert event.object == last


def test_two_watches_see_the_same(home: Home) -> None:
    store = home.store
    since = store.list(WIDGET).resource_version
    with store.watch(WIDGET, since) as one, store.watch(WIDGET, since) as two:
        store.create(widget("a"))

        assert home.drained(one, 1) == home.drained(two, 1) != []


def test_a_revision_that_is_no_longer_kept_has_expired(home: Home) -> None:
    store = home.store
    since = store.list(WIDGET).resource_version
    for number in range(21):
        store.create(widget(f"w-{number}"))
    home.expire()

    with pytest.raises(ExpiredError, match="list again"):
        first_change(home, since)


def first_change(home: Home, since: str) -> WatchEvent | None:
    with home.store.watch(WIDGET, since) as watch:
        assert home.is_kubernetes, "the others tell at once that the revision has expired"
        return watch.next(home.patience_seconds)


@pytest.mark.parametrize("since", ["", "x", "-1", "1.5"], ids=repr)
def test_a_revision_that_was_never_given_has_expired(store: ObjectStore, since: str) -> None:
    with pytest.raises(ExpiredError):
        store.watch(WIDGET, since)


def test_a_reader_that_falls_behind_gets_what_was_kept_and_then_expires(home: Home) -> None:
    store = home.store
    if home.is_kubernetes:
        pytest.skip("how much an API server keeps for a slow reader is its own affair")
    with store.watch(WIDGET, store.list(WIDGET).resource_version) as watch:
        for number in range(31):
            store.create(widget(f"w-{number}"))

        seen = [watch.next(0) for _ in range(30)]
        with pytest.raises(ExpiredError, match="behind"):
            watch.next(0)

    assert [event and event.object["metadata"]["name"] for event in seen] == [f"w-{number}" for number in range(30)]


def test_a_quiet_watch_returns_when_the_time_is_up(store: ObjectStore) -> None:
    with store.watch(WIDGET, store.list(WIDGET).resource_version) as watch:
        assert watch.next(0.001) is None


def test_closing_wakes_the_reader_and_ends_the_stream(store: ObjectStore) -> None:
    watch = store.watch(WIDGET, store.list(WIDGET).resource_version)
    answers: list[object] = []
    reader = threading.Thread(target=lambda: answers.append(watch.next()), daemon=True)
    reader.start()
    watch.close()
    reader.join(60)
    watch.close()
    store.create(widget("a"))

    assert answers == [None]
    assert watch.next() is None


# --- threads ----------------------------------------------------------------------------------------------------------


def test_of_many_threads_that_count_none_is_lost(store: ObjectStore, back_door: BackDoor) -> None:
    store.create(widget("counter", spec={"n": 0}))
    key = Key("team", "counter")

    def count() -> None:
        done = 0
        while done < 10:
            obj = store.get(WIDGET, key)
            try:
                store.update(changed(obj, spec={"n": obj["spec"]["n"] + 1}))
                done += 1
            except ConflictError:
                continue

    in_threads(count, 4)

    (stored,) = back_door()
    assert stored["spec"] == {"n": 40}
    assert stored["metadata"]["generation"] == 41


def test_of_many_threads_that_create_a_name_one_succeeds(store: ObjectStore, back_door: BackDoor) -> None:
    outcomes: list[bool] = []

    def create() -> None:
        try:
            store.create(widget("a"))
            outcomes.append(True)
        except AlreadyExistsError:
            outcomes.append(False)

    in_threads(create, 8)

    assert sorted(outcomes) == [False] * 7 + [True]
    assert len(back_door()) == 1


@pytest.mark.parametrize("home", ["memory", "sql"])
def test_list_then_watch_misses_and_repeats_nothing_while_others_write(home: str, tmp_path: Path) -> None:
    """With stores that keep all changes of the test, unlike those of the other tests here."""
    if home == "memory":
        list_then_watch(memory_store())
        return
    with open_database(tmp_path / "objects.db") as database:
        list_then_watch(SqlStore(database, STATUS_KINDS))


def list_then_watch(store: ObjectStore) -> None:
    numbers = iter(range(10_000))

    def write() -> None:
        for _ in range(50):
            store.create(widget(f"w-{next(numbers)}"))

    writers = [threading.Thread(target=write, daemon=True) for _ in range(3)]
    for writer in writers:
        writer.start()
    listed = store.list(WIDGET)
    with store.watch(WIDGET, listed.resource_version) as watch:
        for writer in writers:
            writer.join()
        seen = [obj["metadata"]["name"] for obj in listed.items]
        seen += [event.object["metadata"]["name"] for event in drain(watch)]

    assert seen == names(store)
    assert len(seen) == 150


def in_threads(function: Callable[[], None], count: int) -> None:
    threads = [threading.Thread(target=function, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
