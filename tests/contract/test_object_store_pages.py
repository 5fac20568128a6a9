"""What every object store promises of lists that are read a page at a time. Each test runs on each store."""

from __future__ import annotations

from itertools import chain

import pytest

from katib.engine.runtime.objects import EventType, Key, Object, ObjectList, ObjectStore
from katib.engine.stores.sql import store as sql
from katib.places.cluster.store import store as kubernetes
from tests.support import memory_store
from tests.support.object_stores import Home
from tests.support.stores import GADGET, WIDGET, changed, widget


@pytest.fixture(autouse=True)
def pages_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (memory_store, sql, kubernetes):
        monkeypatch.setattr(module, "PAGE_SIZE", 3)


def created(obj: Object) -> str:
    moment: str = obj["metadata"]["creationTimestamp"]
    return moment


def joined(pages: list[ObjectList]) -> list[Object]:
    return sorted(chain.from_iterable(page.items for page in pages), key=created)


def fill(store: ObjectStore, count: int, namespace: str = "team") -> None:
    for number in range(count):
        store.create(widget(f"w-{number}", namespace, spec={"n": number}))


@pytest.mark.parametrize("count", [1, 3, 7])
def test_the_pages_are_the_list(store: ObjectStore, count: int) -> None:
    fill(store, count)
    store.create(widget("g", kind=GADGET))

    pages = list(store.pages(WIDGET))
    listed = store.list(WIDGET)

    assert joined(pages) == list(listed.items)
    assert max(len(page.items) for page in pages) <= 3
    assert {page.resource_version for page in pages} == {listed.resource_version}


def test_the_pages_of_a_namespace_show_no_other(store: ObjectStore) -> None:
    fill(store, 4, "one")
    fill(store, 4, "two")

    assert joined(list(store.pages(WIDGET, "two"))) == list(store.list(WIDGET, "two").items)


def test_nothing_is_one_empty_page_to_watch_from(store: ObjectStore, home: Home) -> None:
    (page,) = store.pages(WIDGET)

    assert page.items == ()
    with store.watch(WIDGET, page.resource_version) as watch:
        made = store.create(widget("a"))
        assert [event.object for event in home.drained(watch, 1)] == [made]


def test_all_pages_show_one_moment_and_a_watch_from_it_all_that_happened_between_them(
    store: ObjectStore, home: Home
) -> None:
    if home.is_ours:
        pytest.skip("its pages show objects as they are when each page is read")
    fill(store, 7)
    before = store.list(WIDGET)
    pages = store.pages(WIDGET)
    seen = [next(pages)]
    store.create(widget("a-new"))
    store.create(widget("z-new"))
    store.delete(WIDGET, Key("team", "w-6"))
    store.update(changed(store.get(WIDGET, Key("team", "w-5")), spec={"n": 55}))
    seen += pages

    assert joined(seen) == list(before.items)
    assert {page.resource_version for page in seen} == {before.resource_version}
    with store.watch(WIDGET, before.resource_version) as watch:
        told = [(event.type, event.object["metadata"]["name"]) for event in home.drained(watch, 4)]
    assert told == [
        (EventType.ADDED, "a-new"),
        (EventType.ADDED, "z-new"),
        (EventType.DELETED, "w-6"),
        (EventType.MODIFIED, "w-5"),
    ]


def test_who_stops_between_two_pages_is_in_nobodys_way(store: ObjectStore) -> None:
    fill(store, 7)
    pages = store.pages(WIDGET)
    next(pages)
    del pages
    fill(store, 4, "one")

    assert len(joined(list(store.pages(WIDGET)))) == 11
