"""Patches, by the examples of their specifications and of Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from katib.errors import InvalidError
from katib.kube_api.patches import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, patched

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
