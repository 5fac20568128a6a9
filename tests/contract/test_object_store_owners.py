"""What every object store promises of objects that own others. Each test runs on each store."""

from __future__ import annotations

import pytest

from katib.engine.runtime.objects import EventType, Key, Object, ObjectStore, WatchEvent
from tests.support.object_stores import Home
from tests.support.stores import GADGET, NOTE, WIDGET, names, owned_by, widget, with_metadata


def chain(store: ObjectStore, *, finalizers: list[str] | None = None) -> list[Object]:
    """Create an owner, what it owns, and what that owns."""
    top = store.create(widget("top", finalizers=finalizers or []))
    middle = store.create(widget("middle", kind=GADGET, ownerReferences=owned_by(top)))
    bottom = store.create(widget("bottom", kind=NOTE, ownerReferences=owned_by(middle)))
    return [top, middle, bottom]


def test_what_an_object_owns_goes_with_it(home: Home) -> None:
    store, back_door = home.store, home.back_door
    chain(store)
    bystander = store.create(widget("bystander"))

    store.delete(WIDGET, Key("team", "top"))

    home.settled(lambda: back_door() == [bystander])


def test_what_an_object_owns_goes_when_its_last_finalizer_is_removed(home: Home) -> None:
    store, back_door = home.store, home.back_door
    chain(store, finalizers=["one"])
    store.delete(WIDGET, Key("team", "top"))
    assert len(back_door()) == 3

    store.update(with_metadata(store.get(WIDGET, Key("team", "top")), finalizers=[]))

    home.settled(lambda: back_door() == [])


def test_an_owned_object_with_finalizers_is_marked_and_keeps_what_it_owns(home: Home) -> None:
    store = home.store
    top = store.create(widget("top"))
    middle = store.create(widget("middle", kind=GADGET, finalizers=["one"], ownerReferences=owned_by(top)))
    store.create(widget("bottom", kind=NOTE, ownerReferences=owned_by(middle)))

    store.delete(WIDGET, Key("team", "top"))

    home.settled(lambda: "deletionTimestamp" in store.get(GADGET, Key("team", "middle"))["metadata"])
    assert names(store, NOTE) == ["bottom"]
    store.update(with_metadata(store.get(GADGET, Key("team", "middle")), finalizers=[]))
    home.settled(lambda: names(store, GADGET) == names(store, NOTE) == [])


def test_an_object_lives_as_long_as_one_of_its_owners(home: Home) -> None:
    store = home.store
    one, two = store.create(widget("one")), store.create(widget("two"))
    store.create(widget("shared", kind=GADGET, ownerReferences=owned_by(one, two)))

    store.delete(WIDGET, Key("team", "one"))
    home.await_collector()
    assert names(store, GADGET) == ["shared"]

    store.delete(WIDGET, Key("team", "two"))
    home.settled(lambda: names(store, GADGET) == [])


def test_an_owner_may_be_named_twice_and_labels_and_owners_may_be_null(home: Home) -> None:
    store = home.store
    top = store.create(widget("top", labels=None, ownerReferences=None))
    labels = {"team.example/it": "one", "empty": ""}
    store.create(widget("owned", kind=GADGET, labels=labels, ownerReferences=owned_by(top, top)))

    assert len(store.list(GADGET, labels=labels, owner_uid=top["metadata"]["uid"]).items) == 1
    store.delete(WIDGET, Key("team", "top"))
    home.settled(lambda: names(store, GADGET) == [])


def test_an_object_that_changed_owners_follows_the_new_one(home: Home) -> None:
    store = home.store
    one, two = store.create(widget("one")), store.create(widget("two"))
    moved = store.create(widget("moved", kind=GADGET, ownerReferences=owned_by(one)))
    store.update(with_metadata(moved, ownerReferences=owned_by(two)))
    freed = store.create(widget("freed", kind=GADGET, ownerReferences=owned_by(one)))
    store.update(with_metadata(freed, ownerReferences=[]))
    gone = store.create(widget("gone", kind=GADGET, ownerReferences=owned_by(one)))
    store.update(with_metadata(gone, ownerReferences=owned_by(two)))
    store.delete(GADGET, Key("team", "gone"))

    store.delete(WIDGET, Key("team", "one"))
    home.await_collector()
    assert sorted(names(store, GADGET)) == ["freed", "moved"]
    store.delete(WIDGET, Key("team", "two"))
    home.settled(lambda: names(store, GADGET) == ["freed"])


@pytest.mark.parametrize("finalizers", [[], ["one"]], ids=["removed", "marked"])
def test_what_two_owners_own_goes_once_when_both_go_at_once(home: Home, finalizers: list[str]) -> None:
    store = home.store
    top = store.create(widget("top"))
    middle = store.create(widget("middle", ownerReferences=owned_by(top)))
    store.create(widget("both", ownerReferences=owned_by(top, middle), finalizers=finalizers))

    with store.watch(WIDGET, store.list(WIDGET).resource_version) as watch:
        store.delete(WIDGET, Key("team", "top"))
        # The collector of Kubernetes may first take the owner that is gone out of the references.
        matters = is_end if home.is_kubernetes else None
        seen = [event.object["metadata"]["name"] for event in home.drained(watch, 3, of=matters)]

    assert sorted(seen) == ["both", "middle", "top"]


def is_end(event: WatchEvent) -> bool:
    return event.type is EventType.DELETED or "deletionTimestamp" in event.object["metadata"]


def test_owners_that_own_each_other_go_together(home: Home) -> None:
    store, back_door = home.store, home.back_door
    one = store.create(widget("one"))
    two = store.create(widget("two", ownerReferences=owned_by(one)))
    store.update(with_metadata(one, ownerReferences=owned_by(two)))

    store.delete(WIDGET, Key("team", "two"))

    home.settled(lambda: back_door() == [])


def test_an_object_created_under_a_gone_owner_goes_at_once(home: Home) -> None:
    store, back_door = home.store, home.back_door
    owner = store.create(widget("owner"))
    store.delete(WIDGET, Key("team", "owner"))
    with store.watch(GADGET, store.list(GADGET).resource_version) as watch:
        store.create(widget("late", kind=GADGET, ownerReferences=owned_by(owner)))

        home.settled(lambda: back_door() == [])
        assert [event.type for event in home.drained(watch, 2)] == [EventType.ADDED, EventType.DELETED]
