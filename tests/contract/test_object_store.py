"""What every object store promises. Each test runs on each store."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from katib.engine.runtime.objects import Key, Object, ObjectStore, WholeWrites
from katib.errors import AlreadyExistsError, ConflictError, InternalError, InvalidError, NotFoundError
from tests.support.clock import VirtualClock
from tests.support.object_stores import BackDoor, Home
from tests.support.refusals import refused
from tests.support.stores import GADGET, NOTE, WIDGET, changed, names, owned_by, widget, with_metadata

Write = Callable[[ObjectStore, Object], Object]


def patch(store: ObjectStore, obj: Object) -> Object:
    """Write the spec and the finalizers of an object by a patch."""
    finalizers = obj["metadata"].get("finalizers")
    return store.patch(obj, {"spec": obj.get("spec"), "metadata": {"finalizers": finalizers}})


def update(store: ObjectStore, obj: Object) -> Object:
    return store.update(obj)


def update_status(store: ObjectStore, obj: Object) -> Object:
    return store.update_status(obj)


WRITES = [pytest.param(write, id=write.__name__) for write in (update, update_status, patch)]

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


def test_generated_names_extend_the_base_and_stay_dns_labels(store: ObjectStore) -> None:
    made = [store.create(widget("", generateName="run-"))["metadata"]["name"] for _ in range(20)]

    assert len(set(made)) == 20
    assert all(name.startswith("run-") and len(name) == 9 for name in made)

    assert len(store.create(widget("", generateName="x" * 80))["metadata"]["name"]) == 63


def test_only_a_kind_without_status_subresource_keeps_a_status_that_is_created(store: ObjectStore) -> None:
    assert "status" not in store.create(widget("a", status={"ready": True}))

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
    with refused(origin):
        store.create(obj)
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


def test_what_is_not_there_is_neither_got_nor_deleted(store: ObjectStore) -> None:
    with pytest.raises(NotFoundError, match="Widget team/nobody: not found"):
        store.get(WIDGET, Key("team", "nobody"))

    with pytest.raises(NotFoundError):
        store.delete(WIDGET, Key("team", "a"))


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


def test_a_change_counts_by_its_values_and_metadata_are_none_of_the_generation(store: ObjectStore) -> None:
    made = store.create(widget("a", spec={"size": 1}))

    after = store.update(with_metadata(made, labels={"y": "2"}))

    assert after["metadata"]["generation"] == 1
    assert after["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]

    made = store.create(widget("b", spec={"x": 1, "y": 2}))
    assert store.update(changed(made, spec={"y": 2, "x": 1})) == made


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


@pytest.mark.parametrize("write", WRITES)
def test_a_write_based_on_an_old_reading_is_a_conflict(store: ObjectStore, back_door: BackDoor, write: Write) -> None:
    made = store.create(widget("a", spec={"size": 1}))
    after = store.update(changed(made, spec={"size": 2}))

    with pytest.raises(ConflictError, match="read it again"):
        write(store, changed(made, spec={"size": 3}, status={"n": 1}))

    assert back_door() == [after]


@pytest.mark.parametrize("write", WRITES)
def test_a_write_to_what_is_gone_is_not_found(store: ObjectStore, write: Write) -> None:
    made = store.create(widget("a"))
    store.delete(WIDGET, Key("team", "a"))

    with pytest.raises(NotFoundError):
        write(store, changed(made, spec={"size": 3}, status={"n": 1}))


@pytest.mark.parametrize("write", WRITES)
def test_a_write_to_a_namesake_is_not_found(store: ObjectStore, write: Write) -> None:
    made = store.create(widget("a"))
    store.delete(WIDGET, Key("team", "a"))
    other = store.create(widget("a"))

    with pytest.raises(NotFoundError, match="another object has its name"):
        write(store, changed(made, spec={"n": 3}, status={"n": 1}))
    assert store.get(WIDGET, Key("team", "a")) == other


@pytest.mark.parametrize("write", WRITES)
def test_a_write_must_say_what_it_is_based_on(store: ObjectStore, write: Write) -> None:
    made = store.create(widget("a"))

    with pytest.raises(InvalidError, match=r"metadata\.resourceVersion: missing in an update"):
        write(store, changed(with_metadata(made, resourceVersion=""), spec={"size": 2}, status={"n": 1}))


@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_changes_nothing_is_no_write(home: Home, write: Write) -> None:
    store = home.store
    made = store.update_status(changed(store.create(widget("a", spec={"size": 1})), status={"n": 1}))
    with store.watch(WIDGET, store.list(WIDGET).resource_version) as watch:
        assert write(store, json.loads(json.dumps(made))) == made
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


def test_a_spec_and_a_status_may_be_taken_away(store: ObjectStore) -> None:
    made = dict(store.create(widget("a", spec={"x": 1})))
    del made["spec"]

    assert "spec" not in store.update(made)

    made = dict(store.update_status(changed(store.create(widget("b")), status={"ready": True})))
    del made["status"]
    assert "status" not in store.update_status(made)


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


def test_a_kind_without_status_subresource_has_no_status_update(store: ObjectStore) -> None:
    made = store.create(widget("a", kind=NOTE))

    with pytest.raises(InternalError, match="Note team/a: this kind has no separate status; use update"):
        store.update_status(changed(made, status={"x": 1}))


# --- delete -----------------------------------------------------------------------------------------------------------


def test_a_deleted_object_is_gone_and_its_name_is_free_and_another_uid_deletes_nothing(
    store: ObjectStore, back_door: BackDoor
) -> None:
    made = store.create(widget("a"))

    with pytest.raises(NotFoundError, match="uid other is gone"):
        store.delete(WIDGET, Key("team", "a"), uid="other")

    assert back_door() == [made]
    store.delete(WIDGET, Key("team", "a"), uid=made["metadata"]["uid"])
    assert back_door() == []

    first = store.create(widget("a"))
    store.delete(WIDGET, Key("team", "a"))

    assert back_door() == []
    with pytest.raises(NotFoundError):
        store.get(WIDGET, Key("team", "a"))
    assert store.create(widget("a"))["metadata"]["uid"] != first["metadata"]["uid"]


@pytest.mark.parametrize("write", [WRITES[0], WRITES[2]])
def test_an_object_with_finalizers_waits_for_the_last_of_them(home: Home, write: Write) -> None:
    store, back_door = home.store, home.back_door
    store.create(widget("a", finalizers=["one", "two"]))

    store.delete(WIDGET, Key("team", "a"))
    waiting = store.get(WIDGET, Key("team", "a"))
    assert home.is_now(waiting["metadata"]["deletionTimestamp"])
    assert waiting["metadata"]["generation"] == 2

    waiting = write(store, with_metadata(waiting, finalizers=["two"]))
    assert back_door() == [waiting]

    last = write(store, with_metadata(waiting, finalizers=[]))
    assert back_door() == []
    assert not last["metadata"].get("finalizers")


def test_a_second_delete_of_a_waiting_object_changes_nothing(store: ObjectStore, clock: VirtualClock) -> None:
    store.create(widget("a", finalizers=["one"]))
    store.delete(WIDGET, Key("team", "a"))
    waiting = store.get(WIDGET, Key("team", "a"))
    clock.advance(60)
    store.delete(WIDGET, Key("team", "a"))

    assert store.get(WIDGET, Key("team", "a")) == waiting


@pytest.mark.parametrize("write", [WRITES[0], WRITES[2]])
def test_a_waiting_object_takes_no_new_finalizers(home: Home, write: Write) -> None:
    store = home.store
    store.create(widget("a", finalizers=["one"]))
    store.delete(WIDGET, Key("team", "a"))
    waiting = store.get(WIDGET, Key("team", "a"))

    added = "'two' added while the object is being deleted"
    words = "no new finalizers can be added" if home.is_kubernetes and not home.is_ours else added
    with pytest.raises(InvalidError, match=rf"^metadata\.finalizers: .*{words}"):
        write(store, with_metadata(waiting, finalizers=["one", "two"]))


def test_finalizers_without_a_delete_remove_nothing(store: ObjectStore) -> None:
    store.update(with_metadata(store.create(widget("a", finalizers=["one"])), finalizers=[]))

    assert names(store) == ["a"]


# --- patches and whole writes -----------------------------------------------------------------------------------------

ODD: dict[str, Any] = {
    "names": [],
    "options": {},
    "text": "",
    "nothing": [None, {"inner": []}],
    "numbers": [1, 0, -0.5, True, False],
    "newer": {"than": ["we", {"know": 1}]},
}
"""Forms that a model drops or changes when it reads and writes an object."""


def without_bookkeeping(obj: Object) -> str:
    """Return the text of an object but for what every write changes."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in {"resourceVersion", "finalizers"}}
    return json.dumps({**obj, "metadata": metadata}, sort_keys=True)


def test_a_patch_of_finalizers_leaves_every_other_byte(store: ObjectStore, back_door: BackDoor) -> None:
    made = store.update_status(changed(store.create(widget("a", spec=ODD, labels={"x": "1"})), status={"n": []}))

    after = store.patch(made, {"metadata": {"finalizers": ["mine"]}})

    assert after["metadata"]["finalizers"] == ["mine"]
    assert without_bookkeeping(after) == without_bookkeeping(made)
    assert after["metadata"]["generation"] == 1
    assert back_door() == [after]


def test_a_patch_looks_at_the_identity_of_what_was_read_only(store: ObjectStore) -> None:
    """A cached object need not be whole."""
    remembered = {**store.create(widget("a", spec=ODD)), "spec": {"cut": True}, "status": "x"}

    assert store.patch(remembered, {"metadata": {"labels": {"x": "1"}}})["spec"] == ODD


def test_maps_are_merged_and_null_removes(store: ObjectStore) -> None:
    made = store.create(widget("a", spec={"keep": {"b": [1], "a": 2}, "drop": 1}, labels={"x": "1", "y": "2"}))

    after = store.patch(
        made, {"spec": {"keep": {"a": 3, "c": None}, "drop": None}, "metadata": {"labels": {"y": None, "z": "3"}}}
    )

    assert after["spec"] == {"keep": {"b": [1], "a": 3}}
    assert after["metadata"]["labels"] == {"x": "1", "z": "3"}
    assert after["metadata"]["generation"] == 2


def test_a_kind_without_status_subresource_is_patched_alike(store: ObjectStore) -> None:
    made = store.create(widget("a", kind=NOTE, data={"k": "v"}))

    assert store.patch(made, {"data": {"l": "w"}})["data"] == {"k": "v", "l": "w"}


@pytest.mark.parametrize(
    ("patch", "origin"),
    [
        pytest.param([], "patch-type", id="a list"),
        pytest.param({"metadata": []}, "patch-type", id="metadata a list"),
        pytest.param({"spec": {"x": {1, 2}}}, "not-json", id="a set"),
        pytest.param({"status": {"n": 1}}, "patch-field", id="the status"),
        pytest.param({"kind": "Other"}, "patch-field", id="the kind"),
        pytest.param({"metadata": {"name": "b"}}, "patch-field", id="the name"),
        pytest.param({"metadata": {"resourceVersion": "1"}}, "patch-field", id="the revision"),
    ],
)
def test_what_is_no_patch_is_refused(store: ObjectStore, back_door: BackDoor, patch: Any, origin: str) -> None:
    made = store.create(widget("a"))

    with refused(origin):
        store.patch(made, patch)
    assert back_door() == [made]


@pytest.fixture
def whole(store: ObjectStore) -> WholeWrites:
    if not isinstance(store, WholeWrites):
        pytest.skip("this store writes an object and its status one after the other")
    return store


def test_an_object_is_created_with_its_status_by_one_change(store: ObjectStore, whole: WholeWrites) -> None:
    with store.watch(WIDGET, store.list(WIDGET).resource_version) as watch:
        made = whole.create_whole(changed(widget("a", spec={"size": 1}), status={"ready": True}))
        event = watch.next(5)

        assert event is not None
        assert event.object == made == store.get(WIDGET, Key("team", "a"))
        assert (made["status"], made["metadata"]["generation"]) == ({"ready": True}, 1)
        assert watch.next(0) is None
    with pytest.raises(AlreadyExistsError):
        whole.create_whole(changed(widget("a"), status={}))


def test_fields_and_status_are_changed_by_one_change_or_not_at_all(store: ObjectStore, whole: WholeWrites) -> None:
    made = whole.create_whole(changed(widget("a", spec={"size": 1}), status={"ready": False}))
    label = {"metadata": {"labels": {"x": "1"}}}
    with store.watch(WIDGET, made["metadata"]["resourceVersion"]) as watch:
        after = whole.patch_whole(changed(made, status={"ready": True}), label)

        assert (after["status"], after["metadata"]["labels"]["x"]) == ({"ready": True}, "1")
        assert (after["spec"], after["metadata"]["generation"]) == (made["spec"], 1)
        assert watch.next(5) is not None
        assert whole.patch_whole(after, label) == after  # a write that changes nothing is no write
        with pytest.raises(ConflictError):
            whole.patch_whole(changed(made, status={"ready": False}), {"metadata": {"labels": {"x": "2"}}})
        assert watch.next(0) is None
    assert store.get(WIDGET, Key("team", "a")) == after
