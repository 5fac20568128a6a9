"""What every object store promises. Each test runs on each store."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from katib.database import open_database
from katib.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    InternalError,
    InvalidError,
    NotFoundError,
)
from katib.runtime.objects import EventType, Key, Object, ObjectStore, Watch, WatchEvent
from katib.runtime.testing import VirtualClock
from katib.stores.kubernetes import KubernetesStore
from katib.stores.sql import SqlStore
from tests.support.api_server import ApiServer
from tests.support.faulty_store import FaultyStore
from tests.support.server_kinds import await_garbage_collection, clear_test_kinds, objects_of_tests
from tests.support.stores import (
    GADGET,
    NOTE,
    STATUS_KINDS,
    WIDGET,
    changed,
    drain,
    eventually,
    memory_store,
    names,
    owned_by,
    widget,
    with_metadata,
)

BackDoor = Callable[[], list[dict[str, Any]]]


@dataclass(frozen=True)
class Home:
    """A store, and where its promises leave room.

    Attributes:
        store: The store.
        back_door: Reads it without passing through it.
        now: The time by which it stamps.
        patience_seconds: How long its garbage collection, and the news of a change, may take.
        expire: Makes it forget all changes so far.
        expire: Makes it forget all changes but the last twenty.
        await_collector: Waits until its garbage collector has seen all changes so far.
        is_kubernetes: Whether the semantics are those of the API server itself: JSON of Go, its words in errors.
    """

    store: ObjectStore
    back_door: BackDoor
    now: Callable[[], datetime]
    patience_seconds: float = 0.0
    expire: Callable[[], None] = lambda: None
    await_collector: Callable[[], None] = lambda: None
    is_kubernetes: bool = False

    def settled(self, check: Callable[[], object]) -> None:
        """Assert that a check holds, at once or as soon as the store may need."""
        if self.patience_seconds:
            eventually(check, self.patience_seconds)
        assert check()

    def drained(self, watch: Watch, count: int, of: Callable[[WatchEvent], bool] | None = None) -> list[WatchEvent]:
        """Return the changes that a watch has and that matter, which should be so many."""
        events: list[WatchEvent] = []
        while event := watch.next(self.patience_seconds if len(events) < count else min(self.patience_seconds, 0.1)):
            if of is None or of(event):
                events.append(event)
        return events

    def is_now(self, text: str) -> bool:
        """Return whether a time stamp is of this moment."""
        moment = datetime.fromisoformat(text)
        return abs((moment - self.now()).total_seconds()) <= self.patience_seconds

    def await_next_second(self) -> None:
        """Let the time pass that two creations need to be told apart."""
        if self.is_kubernetes:
            second = int(time.time())
            eventually(lambda: int(time.time()) > second)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC))


@pytest.fixture(params=["memory", "sql", "wrapped", pytest.param("kubernetes", marks=pytest.mark.cluster)])
def home(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> Iterator[Home]:
    """A store that keeps few changes, where that can be chosen."""
    if request.param == "kubernetes":
        yield from kubernetes_home(request.getfixturevalue("api_server"))
        return
    if request.param != "sql":
        memory = memory_store(clock, kept_changes=20, longest_backlog=30)
        store = memory if request.param == "memory" else FaultyStore(memory)  # without faults it has to be transparent
        yield Home(
            store, lambda: [dict(obj) for kind in memory._rows._objects.values() for obj in kind.values()], clock.now
        )
        return
    path = tmp_path / "objects.db"
    with open_database(path) as database:
        store = SqlStore(database, STATUS_KINDS, clock=clock, kept_changes=20, longest_backlog=30)
        yield Home(store, lambda: bodies(path), clock.now)


def kubernetes_home(server: ApiServer) -> Iterator[Home]:
    """The API server, empty of the kinds of the tests."""
    for name in ("team", "one", "two"):
        server.namespace(name)
    clear_test_kinds(server)
    yield Home(
        KubernetesStore(server.admin),
        lambda: objects_of_tests(server),
        lambda: datetime.now(UTC),
        patience_seconds=15.0,
        expire=server.expire,
        await_collector=lambda: await_garbage_collection(server),
        is_kubernetes=True,
    )
    clear_test_kinds(server)


def bodies(path: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT body FROM objects ORDER BY id").fetchall()
    connection.close()
    return [json.loads(body) for (body,) in rows]


@pytest.fixture
def store(home: Home) -> ObjectStore:
    return home.store


@pytest.fixture
def back_door(home: Home) -> BackDoor:
    return home.back_door


# --- create -----------------------------------------------------------------------------------------------------------


def test_what_is_created_is_kept_and_read_back(store: ObjectStore, back_door: BackDoor) -> None:
    made = store.create(widget("a", spec={"size": 1}, labels={"color": "red"}))

    assert back_door() == [made]
    assert store.get(WIDGET, Key("team", "a")) == made
    assert made["spec"] == {"size": 1}
    assert made["metadata"]["labels"] == {"color": "red"}


def test_the_store_sets_identity_time_generation_and_revision(home: Home) -> None:
    store = home.store
    metadata = store.create(widget("a"))["metadata"]

    assert home.is_now(metadata["creationTimestamp"])
    assert metadata["generation"] == 1
    assert metadata["resourceVersion"]
    assert len(metadata["uid"]) == 36
    assert metadata["uid"] != store.create(widget("b"))["metadata"]["uid"]


def test_identity_given_by_the_caller_is_ignored(store: ObjectStore) -> None:
    given = widget(
        "a",
        uid="mine",
        resourceVersion="77",
        generation=9,
        creationTimestamp="x",
        deletionTimestamp="2024-01-01T00:00:00Z",
    )

    metadata = store.create(given)["metadata"]

    assert metadata["uid"] != "mine"
    assert metadata["generation"] == 1
    assert "deletionTimestamp" not in metadata


def test_a_second_create_is_refused_and_leaves_the_first(store: ObjectStore, back_door: BackDoor) -> None:
    made = store.create(widget("a", spec={"size": 1}))

    with pytest.raises(AlreadyExistsError, match="Widget team/a: exists; delete it or choose another name"):
        store.create(widget("a", spec={"size": 2}))

    assert back_door() == [made]


def test_names_are_unique_per_namespace_and_kind_only(home: Home) -> None:
    store = home.store
    store.create(widget("a", "one"))
    store.create(widget("a", "two"))
    store.create(widget("a", "one", kind=GADGET))
    if not home.is_kubernetes:  # there a kind lives in namespaces or outside, never in both
        store.create(widget("a", ""))

    assert len(store.list(WIDGET).items) == (2 if home.is_kubernetes else 3)


def test_a_generated_name_extends_the_base(store: ObjectStore) -> None:
    made = [store.create(widget("", generateName="run-"))["metadata"]["name"] for _ in range(20)]

    assert len(set(made)) == 20
    assert all(name.startswith("run-") and len(name) == 9 for name in made)


def test_a_long_generated_name_stays_a_dns_label(store: ObjectStore) -> None:
    made = store.create(widget("", generateName="x" * 80))

    assert len(made["metadata"]["name"]) == 63


def test_status_is_ignored_at_creation(store: ObjectStore) -> None:
    assert "status" not in store.create(widget("a", status={"ready": True}))


def test_a_kind_without_status_subresource_keeps_every_field(store: ObjectStore) -> None:
    made = store.create(widget("a", kind=NOTE, data={"k": "v"}, status={"ready": True}))

    assert made["data"] == {"k": "v"}
    assert made["status"] == {"ready": True}


@pytest.mark.parametrize(
    ("obj", "origin"),
    [
        pytest.param({"kind": "Widget", "metadata": {"name": "a"}}, "kind-missing", id="no apiVersion"),
        pytest.param({"apiVersion": "v1", "metadata": {"name": "a"}}, "kind-missing", id="no kind"),
        pytest.param(widget(""), "name-missing", id="no name"),
        pytest.param(widget("A_b"), "name-dns", id="name no DNS name"),
        pytest.param(widget("x" * 254), "name-dns", id="name too long"),
        pytest.param(widget(7), "name-dns", id="name a number"),  # type: ignore[arg-type] # the point of the case
        pytest.param(widget("a", "Team"), "namespace-dns", id="namespace no DNS label"),
        pytest.param(widget("a", spec={"x": float("nan")}), "not-json", id="NaN"),
        pytest.param(widget("a", spec={"x": datetime(2024, 1, 1, tzinfo=UTC)}), "not-json", id="a date"),
        pytest.param({**widget("a"), "metadata": []}, "metadata-type", id="metadata a list"),
        pytest.param(widget("a", labels={"x": 1}), "metadata-type", id="label a number"),
        pytest.param(widget("a", annotations=["x"]), "metadata-type", id="annotations a list"),
        pytest.param(widget("a", finalizers="x"), "metadata-type", id="finalizers a text"),
        pytest.param(widget("a", ownerReferences=[{"name": "b"}]), "owner-uid-missing", id="owner without uid"),
        pytest.param(widget("a", ownerReferences="b"), "metadata-type", id="owners a text"),
        pytest.param([], "not-a-map", id="a list"),
    ],
)
def test_what_is_no_object_is_refused(store: ObjectStore, back_door: BackDoor, obj: Any, origin: str) -> None:
    with pytest.raises(InvalidError) as caught:
        store.create(obj)

    assert [error.origin for error in caught.value.errors] == [origin]
    assert back_door() == []


def test_any_json_comes_back_as_it_went_in(home: Home) -> None:
    store = home.store
    spec: dict[str, Any] = {
        "text": "häßlich \u0000 \ud83d\ude00 '\"\\",
        "null": None,
        "numbers": [1, 1.0, -0.0, 1e300, True],
        "": {"": []},
    }

    store.create(widget("a", spec=spec))

    found = store.get(WIDGET, Key("team", "a"))["spec"]
    if home.is_kubernetes:  # Go sorts keys and makes 1 of 1.0
        assert found == json.loads(json.dumps(spec))
    else:
        assert json.dumps(found) == json.dumps(spec)


def test_the_store_keeps_no_reference_to_what_it_was_given(store: ObjectStore) -> None:
    given = widget("a", spec={"list": [1]})
    made = store.create(given)
    given["spec"]["list"].append(2)
    given["metadata"]["labels"] = {"x": "y"}

    assert store.get(WIDGET, Key("team", "a")) == made
    assert made["spec"] == {"list": [1]}


# --- get and list -----------------------------------------------------------------------------------------------------


def test_getting_what_is_not_there_says_so(store: ObjectStore) -> None:
    with pytest.raises(NotFoundError, match="Widget team/nobody: not found"):
        store.get(WIDGET, Key("team", "nobody"))


def test_a_list_is_in_order_of_creation_also_after_changes(home: Home) -> None:
    store = home.store
    made = {}
    for name in ("c", "a", "b"):
        made[name] = store.create(widget(name))
        home.await_next_second()
    store.update(changed(made["c"], spec={"x": 1}))
    store.delete(WIDGET, Key("team", "a"))
    store.create(widget("a"))

    assert names(store) == ["c", "b", "a"]


def test_a_list_is_narrowed_by_namespace_labels_and_owner(store: ObjectStore) -> None:
    owner = store.create(widget("owner", "one", kind=GADGET))
    store.create(widget("a", "one", labels={"x": "1", "y": "1"}, ownerReferences=owned_by(owner)))
    store.create(widget("b", "one", labels={"x": "1", "y": "2"}))
    store.create(widget("c", "two", labels={"x": "1"}))
    store.create(widget("d", "two"))

    assert names(store) == ["a", "b", "c", "d"]
    assert names(store, namespace="one") == ["a", "b"]
    assert names(store, labels={"x": "1"}) == ["a", "b", "c"]
    assert names(store, namespace="two", labels={"x": "1"}) == ["c"]
    assert names(store, labels={"x": "1", "y": "2"}) == ["b"]
    assert names(store, labels={}) == ["a", "b", "c", "d"]
    assert names(store, owner_uid=owner["metadata"]["uid"]) == ["a"]
    assert names(store, owner_uid=owner["metadata"]["uid"], labels={"y": "2"}) == []
    assert names(store, owner_uid="nobody") == []
    assert names(store, namespace="three") == []


def test_changed_labels_and_owners_are_found_under_their_new_values_only(store: ObjectStore) -> None:
    one, two = store.create(widget("one", kind=GADGET)), store.create(widget("two", kind=GADGET))
    made = store.create(widget("a", labels={"x": "1", "z": "1"}, ownerReferences=owned_by(one)))
    store.update(with_metadata(made, labels={"x": "2", "z": "1"}, ownerReferences=owned_by(two)))

    assert names(store, labels={"x": "1"}) == []
    assert names(store, labels={"x": "2", "z": "1"}) == ["a"]
    assert names(store, owner_uid=one["metadata"]["uid"]) == []
    assert names(store, owner_uid=two["metadata"]["uid"]) == ["a"]


# --- update -----------------------------------------------------------------------------------------------------------


def test_an_update_replaces_spec_and_metadata_and_raises_the_generation(
    store: ObjectStore, back_door: BackDoor
) -> None:
    made = store.create(widget("a", spec={"size": 1}, labels={"x": "1"}))

    after = store.update(changed(with_metadata(made, labels={"y": "2"}), spec={"size": 2}))

    assert back_door() == [after]
    assert after["spec"] == {"size": 2}
    assert after["metadata"]["labels"] == {"y": "2"}
    assert after["metadata"]["generation"] == 2
    assert after["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]


def test_metadata_alone_keeps_the_generation(store: ObjectStore) -> None:
    made = store.create(widget("a", spec={"size": 1}))

    after = store.update(with_metadata(made, labels={"y": "2"}))

    assert after["metadata"]["generation"] == 1
    assert after["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]


def test_an_update_leaves_the_status_and_what_the_store_sets(store: ObjectStore, clock: VirtualClock) -> None:
    made = store.create(widget("a"))
    made = store.update_status(changed(made, status={"ready": True}))
    clock.advance(60)
    forged = with_metadata(made, generation=50, creationTimestamp="x", deletionTimestamp="y", annotations={"a": "b"})

    after = store.update(changed(forged, status={"ready": False}))

    kept = ("uid", "creationTimestamp", "generation")
    assert {name: after["metadata"][name] for name in kept} == {name: made["metadata"][name] for name in kept}
    assert "deletionTimestamp" not in after["metadata"]
    assert after["status"] == {"ready": True}


@pytest.mark.parametrize("method", ["update", "update_status"])
def test_a_write_based_on_an_old_reading_is_a_conflict(store: ObjectStore, back_door: BackDoor, method: str) -> None:
    made = store.create(widget("a", spec={"size": 1}))
    after = store.update(changed(made, spec={"size": 2}))

    with pytest.raises(ConflictError, match="read it again"):
        getattr(store, method)(changed(made, spec={"size": 3}, status={"n": 1}))

    assert back_door() == [after]


@pytest.mark.parametrize("method", ["update", "update_status"])
def test_a_write_to_what_is_gone_is_not_found(store: ObjectStore, method: str) -> None:
    made = store.create(widget("a"))
    store.delete(WIDGET, Key("team", "a"))

    with pytest.raises(NotFoundError):
        getattr(store, method)(changed(made, spec={"size": 3}, status={"n": 1}))


@pytest.mark.parametrize("method", ["update", "update_status"])
def test_a_write_to_a_namesake_is_not_found(store: ObjectStore, method: str) -> None:
    made = store.create(widget("a"))
    store.delete(WIDGET, Key("team", "a"))
    store.create(widget("a"))

    with pytest.raises(NotFoundError, match="another object has its name"):
        getattr(store, method)(changed(made, status={"n": 1}))


def test_an_update_must_say_what_it_is_based_on(store: ObjectStore) -> None:
    store.create(widget("a"))

    with pytest.raises(InvalidError, match=r"metadata\.resourceVersion: missing in an update"):
        store.update(widget("a", spec={"size": 2}))


@pytest.mark.parametrize("method", ["update", "update_status"])
def test_a_write_that_changes_nothing_is_no_write(home: Home, method: str) -> None:
    store = home.store
    made = store.update_status(changed(store.create(widget("a", spec={"size": 1})), status={"n": 1}))
    with store.watch(WIDGET, store.list(WIDGET).resource_version) as watch:
        again = getattr(store, method)(json.loads(json.dumps(made)))

        assert again == made
        assert home.drained(watch, 0) == []
        if not home.is_kubernetes:  # there a list tells the revision of the whole cluster
            assert store.list(WIDGET).resource_version == made["metadata"]["resourceVersion"]


@pytest.mark.parametrize(("before", "after"), [(1, True), (1, 1.0), (0, False)], ids=str)
def test_values_that_python_calls_equal_are_a_change_when_their_json_differs(
    home: Home, before: object, after: object
) -> None:
    if home.is_kubernetes and isinstance(after, float):
        pytest.skip("an API server makes 1 of 1.0")
    store = home.store
    made = store.create(widget("a", spec={"x": before}))

    updated = store.update(changed(made, spec={"x": after}))

    assert json.dumps(updated["spec"]["x"]) == json.dumps(after)
    assert updated["metadata"]["generation"] == 2


def test_the_order_of_keys_is_no_change(store: ObjectStore) -> None:
    made = store.create(widget("a", spec={"x": 1, "y": 2}))

    assert store.update(changed(made, spec={"y": 2, "x": 1})) == made


def test_a_spec_may_be_taken_away(store: ObjectStore) -> None:
    made = dict(store.create(widget("a", spec={"x": 1})))
    del made["spec"]

    assert "spec" not in store.update(made)


# --- status -----------------------------------------------------------------------------------------------------------


def test_a_status_update_changes_the_status_and_nothing_else(store: ObjectStore, back_door: BackDoor) -> None:
    made = store.create(widget("a", spec={"size": 1}, labels={"x": "1"}))
    given = changed(with_metadata(made, labels={}, finalizers=["f"]), spec={"size": 2}, status={"ready": True})

    after = store.update_status(given)

    assert back_door() == [after]
    assert after["status"] == {"ready": True}
    assert after["spec"] == {"size": 1}
    revision = after["metadata"]["resourceVersion"]
    assert after["metadata"] == {**made["metadata"], "resourceVersion": revision}
    assert revision != made["metadata"]["resourceVersion"]


def test_a_status_may_be_taken_away(store: ObjectStore) -> None:
    made = dict(store.update_status(changed(store.create(widget("a")), status={"ready": True})))
    del made["status"]

    assert "status" not in store.update_status(made)


def test_a_kind_without_status_subresource_has_no_status_update(store: ObjectStore) -> None:
    made = store.create(widget("a", kind=NOTE))

    with pytest.raises(InternalError, match="Note team/a: this kind has no separate status; use update"):
        store.update_status(changed(made, status={"x": 1}))


# --- delete -----------------------------------------------------------------------------------------------------------


def test_a_deleted_object_is_gone_and_its_name_is_free(store: ObjectStore, back_door: BackDoor) -> None:
    first = store.create(widget("a"))
    store.delete(WIDGET, Key("team", "a"))

    assert back_door() == []
    with pytest.raises(NotFoundError):
        store.get(WIDGET, Key("team", "a"))
    assert store.create(widget("a"))["metadata"]["uid"] != first["metadata"]["uid"]


def test_deleting_what_is_not_there_says_so(store: ObjectStore) -> None:
    with pytest.raises(NotFoundError):
        store.delete(WIDGET, Key("team", "a"))


def test_a_delete_that_names_another_uid_deletes_nothing(store: ObjectStore, back_door: BackDoor) -> None:
    made = store.create(widget("a"))

    with pytest.raises(NotFoundError, match="uid other is gone"):
        store.delete(WIDGET, Key("team", "a"), uid="other")

    assert back_door() == [made]
    store.delete(WIDGET, Key("team", "a"), uid=made["metadata"]["uid"])
    assert back_door() == []


def test_an_object_with_finalizers_waits_for_the_last_of_them(home: Home) -> None:
    store, back_door = home.store, home.back_door
    store.create(widget("a", finalizers=["one", "two"]))

    store.delete(WIDGET, Key("team", "a"))
    waiting = store.get(WIDGET, Key("team", "a"))
    assert home.is_now(waiting["metadata"]["deletionTimestamp"])
    assert waiting["metadata"]["generation"] == 2

    waiting = store.update(with_metadata(waiting, finalizers=["two"]))
    assert back_door() == [waiting]

    last = store.update(with_metadata(waiting, finalizers=[]))
    assert back_door() == []
    assert not last["metadata"].get("finalizers")


def test_a_second_delete_of_a_waiting_object_changes_nothing(store: ObjectStore, clock: VirtualClock) -> None:
    store.create(widget("a", finalizers=["one"]))
    store.delete(WIDGET, Key("team", "a"))
    waiting = store.get(WIDGET, Key("team", "a"))
    clock.advance(60)
    store.delete(WIDGET, Key("team", "a"))

    assert store.get(WIDGET, Key("team", "a")) == waiting


def test_a_waiting_object_takes_no_new_finalizers(home: Home) -> None:
    store = home.store
    store.create(widget("a", finalizers=["one"]))
    store.delete(WIDGET, Key("team", "a"))
    waiting = store.get(WIDGET, Key("team", "a"))

    words = "no new finalizers can be added" if home.is_kubernetes else "'two' added while the object is being deleted"
    with pytest.raises(InvalidError, match=rf"^metadata\.finalizers: .*{words}"):
        store.update(with_metadata(waiting, finalizers=["one", "two"]))


def test_finalizers_without_a_delete_remove_nothing(store: ObjectStore) -> None:
    made = store.create(widget("a", finalizers=["one"]))
    store.update(with_metadata(made, finalizers=[]))

    assert names(store) == ["a"]


# --- owners -----------------------------------------------------------------------------------------------------------


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

    waiting = store.get(WIDGET, Key("team", "top"))
    store.update(with_metadata(waiting, finalizers=[]))

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


# --- watch ------------------------------------------------------------------------------------------------------------


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
    if home.is_kubernetes:  # it tells the state before the finalizer went, at the revision of the deletion
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
    reader.join(10)
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
