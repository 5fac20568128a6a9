"""What every object store promises of a patch: it changes what it names, and nothing else in any way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from katib.errors import ConflictError, InvalidError, NotFoundError
from katib.runtime.objects import Key, Object, ObjectStore
from tests.support.object_stores import BackDoor, Home
from tests.support.stores import NOTE, WIDGET, changed, names, widget, with_metadata

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
    made = store.create(widget("a", spec=ODD))
    remembered = {**made, "spec": {"cut": True}, "status": "x"}

    after = store.patch(remembered, {"metadata": {"labels": {"x": "1"}}})

    assert after["spec"] == ODD


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


def test_a_patch_that_changes_nothing_is_no_write(home: Home) -> None:
    made = home.store.create(widget("a", spec={"n": 1}, finalizers=["one"]))
    with home.store.watch(WIDGET, home.store.list(WIDGET).resource_version) as watch:
        again = home.store.patch(made, {"spec": {"n": 1}, "metadata": {"finalizers": ["one"]}})

        assert again == made
        assert home.drained(watch, 0) == []


def test_a_patch_based_on_an_old_reading_is_a_conflict(store: ObjectStore, back_door: BackDoor) -> None:
    made = store.create(widget("a", spec={"n": 1}))
    after = store.patch(made, {"spec": {"n": 2}})

    with pytest.raises(ConflictError, match="read it again"):
        store.patch(made, {"spec": {"n": 3}})

    assert back_door() == [after]


def test_a_patch_of_what_is_gone_is_not_found(store: ObjectStore) -> None:
    made = store.create(widget("a"))
    store.delete(WIDGET, Key("team", "a"))

    with pytest.raises(NotFoundError):
        store.patch(made, {"spec": {"n": 3}})


def test_a_patch_of_a_namesake_is_not_found(store: ObjectStore) -> None:
    made = store.create(widget("a"))
    store.delete(WIDGET, Key("team", "a"))
    other = store.create(widget("a"))

    with pytest.raises(NotFoundError, match="another object has its name"):
        store.patch(made, {"spec": {"n": 3}})

    assert store.get(WIDGET, Key("team", "a")) == other


def test_the_last_finalizer_may_be_removed_by_a_patch(home: Home) -> None:
    store = home.store
    store.create(widget("a", finalizers=["one"]))
    store.delete(WIDGET, Key("team", "a"))

    store.patch(store.get(WIDGET, Key("team", "a")), {"metadata": {"finalizers": []}})

    assert names(store) == []


def test_a_waiting_object_takes_no_new_finalizers_by_a_patch_either(store: ObjectStore) -> None:
    store.create(widget("a", finalizers=["one"]))
    store.delete(WIDGET, Key("team", "a"))
    waiting = store.get(WIDGET, Key("team", "a"))

    with pytest.raises(InvalidError, match=r"metadata\.finalizers"):
        store.patch(waiting, {"metadata": {"finalizers": ["one", "two"]}})


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

    with pytest.raises(InvalidError) as caught:
        store.patch(made, patch)

    assert [error.origin for error in caught.value.errors] == [origin]
    assert back_door() == [made]


def test_a_patch_must_say_what_it_is_based_on(store: ObjectStore) -> None:
    made = store.create(widget("a"))

    with pytest.raises(InvalidError, match=r"metadata\.resourceVersion: missing in an update"):
        store.patch(with_metadata(made, resourceVersion=""), {"spec": {}})
