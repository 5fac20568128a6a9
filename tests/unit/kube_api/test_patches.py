"""Patches, by the examples of their specifications and of Kubernetes, and who owns which fields after an apply."""

from __future__ import annotations

from typing import Any

import pytest

from katib.doors.kube_api.applying import BEFORE_FIRST, ConflictsError, applied, read_fields, updated
from katib.doors.kube_api.patches import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, patched
from katib.errors import InvalidError

OLD: dict[str, Any] = {
    "metadata": {"finalizers": ["a"]},
    "spec": {"containers": [{"name": "one", "image": "x"}, {"name": "two"}], "args": ["a", "b"], "map": {"k": "v"}},
}


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/a/-", "value": 3}], {"a": [1, 2, 3]}),
        ([{"op": "add", "path": "/a/0", "value": 3}], {"a": [3, 1, 2]}),
        ([{"op": "replace", "path": "/a/1", "value": 3}], {"a": [1, 3]}),
        ([{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ([{"op": "copy", "from": "/a/0", "path": "/b~1c"}], {"a": [1, 2], "b/c": 1}),
        ([{"op": "move", "from": "/a", "path": "/b"}], {"b": [1, 2]}),
        (
            [{"op": "test", "path": "/a", "value": [1, 2]}, {"op": "add", "path": "/b", "value": 0}],
            {"a": [1, 2], "b": 0},
        ),
    ],
)
def test_json_patches_do_what_they_say(operations: Any, expected: Any) -> None:
    old = {"a": [1, 2]}

    assert patched(old, operations, JSON_PATCH) == expected
    assert old == {"a": [1, 2]}


@pytest.mark.parametrize(
    "operations",
    [
        {},
        [1],
        [{"op": "none", "path": "/a"}],
        [{"op": "remove", "path": "/b"}],
        [{"op": "remove", "path": ""}],
        [{"op": "remove", "path": "a"}],
        [{"op": "add", "path": "/a/7", "value": 1}],
        [{"op": "add", "path": "/a/01", "value": 1}],
        [{"op": "replace", "path": "/b", "value": 1}],
        [{"op": "move", "from": "/a", "path": "/a/0"}],
        [{"op": "test", "path": "/a", "value": [1.0, 2]}],
        [{"op": "add", "path": "/a/0/x", "value": 1}],
    ],
)
def test_json_patches_that_do_not_fit_are_refused(operations: Any) -> None:
    with pytest.raises(InvalidError):
        patched({"a": [1, 2]}, operations, JSON_PATCH)


def test_a_merge_patch_replaces_lists_and_removes_nulls() -> None:
    patch = {"spec": {"args": ["c"], "map": None}}

    assert patched(OLD, patch, MERGE_PATCH)["spec"] == {"containers": OLD["spec"]["containers"], "args": ["c"]}
    with pytest.raises(InvalidError):
        patched(OLD, [], MERGE_PATCH)


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"containers": [{"name": "one", "image": "y"}]}, [{"name": "one", "image": "y"}, {"name": "two"}]),
        ({"containers": [{"name": "three"}]}, [{"name": "one", "image": "x"}, {"name": "two"}, {"name": "three"}]),
        ({"containers": [{"name": "one", "$patch": "delete"}]}, [{"name": "two"}]),
        ({"containers": [{"name": "new"}, {"$patch": "replace"}]}, [{"name": "new"}]),
        (
            {"containers": [{"name": "0"}], "$setElementOrder/containers": [{"name": "0"}, {"name": "two"}]},
            [{"name": "0"}, {"name": "two"}, {"name": "one", "image": "x"}],
        ),
        ({"$setElementOrder/containers": [{"name": "two"}]}, [{"name": "two"}, {"name": "one", "image": "x"}]),
    ],
)
def test_a_strategic_patch_merges_lists_by_key(patch: Any, expected: Any) -> None:
    assert patched(OLD, {"spec": patch}, STRATEGIC_PATCH)["spec"]["containers"] == expected


def test_a_strategic_patch_merges_sets_and_knows_directives() -> None:
    finalizers = patched(OLD, {"metadata": {"finalizers": ["b"]}}, STRATEGIC_PATCH)["metadata"]["finalizers"]
    removed = patched(OLD, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}, STRATEGIC_PATCH)
    spec = patched(OLD, {"spec": {"map": {"$patch": "replace", "n": 1}, "args": ["z"]}}, STRATEGIC_PATCH)["spec"]
    retained = patched(OLD, {"spec": {"$retainKeys": ["args"], "new": 1}}, STRATEGIC_PATCH)["spec"]

    assert finalizers == ["a", "b"]
    assert removed["metadata"]["finalizers"] == []
    assert (spec["map"], spec["args"]) == ({"n": 1}, ["z"])
    assert retained == {"args": ["a", "b"], "new": 1}
    for wrong in ({"spec": {"$patch": "none"}}, {"spec": {"containers": [{"image": "x"}]}}):
        with pytest.raises(InvalidError):
            patched(OLD, wrong, STRATEGIC_PATCH)


Json = dict[str, Any]

NOW = "2026-01-01T00:00:00Z"


def job(**fields: Any) -> Json:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": fields}


def containers(*names: str, **fields: Any) -> Json:
    return job(containers=[{"name": name, **fields} for name in names])


def apply(old: Json | None, config: Json, manager: str = "a", *, force: bool = False) -> Json:
    return applied(old, config, manager, NOW, force=force, is_keyed=True)


def managers(obj: Json) -> dict[str, set[tuple[str, ...]]]:
    return {entry["manager"]: set(read_fields(entry)) for entry in obj["metadata"].get("managedFields", ())}


def test_what_is_applied_is_owned_and_the_same_again_changes_nothing() -> None:
    first = apply(None, job(a=1, b=2))
    second = apply(first, job(a=1))

    assert first["spec"] == {"a": 1, "b": 2}
    assert second["spec"] == {"a": 1}
    assert managers(second) == {"a": {("f:spec", "f:a")}}

    first = apply(None, job(a=1))

    assert applied(first, job(a=1), "a", "2027-01-01T00:00:00Z", force=False, is_keyed=True) == first


def test_fields_that_others_own_are_conflicts_and_first_owners_known() -> None:
    old = job(a=1, b=2)
    with pytest.raises(ConflictsError):
        apply(old, job(a=2))

    assert set(managers(apply(old, job(a=1)))) == {BEFORE_FIRST, "a"}

    shared = apply(apply(None, job(a=1)), job(a=1, b=2), "b")
    with pytest.raises(ConflictsError) as refused:
        apply(shared, job(a=3), "c")
    forced = apply(shared, job(a=3), "c", force=True)

    assert managers(shared) == {"a": {("f:spec", "f:a")}, "b": {("f:spec", "f:a"), ("f:spec", "f:b")}}
    assert refused.value.conflicts == (("a", ".spec.a"), ("b", ".spec.a"))
    assert forced["spec"] == {"a": 3, "b": 2}
    assert managers(forced) == {"b": {("f:spec", "f:b")}, "c": {("f:spec", "f:a")}}


def test_elements_of_keyed_lists_have_owners_of_their_own() -> None:
    second = apply(apply(None, containers("one", image="x")), containers("two", image="y"), "b")
    third = apply(second, containers("two"), "b")
    last = apply(third, job(containers=[]), "b")

    assert [one["name"] for one in second["spec"]["containers"]] == ["one", "two"]
    assert third["spec"]["containers"][1] == {"name": "two"}
    assert [one["name"] for one in last["spec"]["containers"]] == ["one"]


def test_lists_of_custom_kinds_are_replaced_and_other_writes_take_over() -> None:
    first = applied(None, containers("one"), "a", NOW, force=False, is_keyed=False)
    second = applied(first, containers("two"), "a", NOW, force=False, is_keyed=False)

    assert second["spec"]["containers"] == [{"name": "two"}]

    first = apply(None, job(a=1, b=2))
    edited = updated(first, {**first, "spec": {"a": 5}}, "editor", NOW, is_keyed=True)

    assert managers(edited) == {"editor": {("f:spec", "f:a")}}
    assert updated(job(a=1), job(a=2), "editor", NOW, is_keyed=True) == job(a=2)
    forgotten = {**first, "metadata": {**first["metadata"], "managedFields": []}}
    assert updated(first, forgotten, "editor", NOW, is_keyed=True)["metadata"] == {"name": "j"}
