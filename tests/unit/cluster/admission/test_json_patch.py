from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from katib.cluster.admission.reviews import diff

KEYS = st.sampled_from(["a", "b", "a/b", "m~n", "", "0"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, "x", ""]),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(KEYS, children, max_size=4),
    max_leaves=12,
)


def apply(value: Any, patch: list[dict[str, Any]]) -> Any:
    """Apply a patch as RFC 6902 says, with nothing tolerated."""
    root = {"": copy.deepcopy(value)}
    for operation in patch:
        keys = [key.replace("~1", "/").replace("~0", "~") for key in operation["path"].split("/")]
        parent: Any = root
        for key in keys[:-1]:
            parent = parent[int(key)] if isinstance(parent, list) else parent[key]
        last: Any = int(keys[-1]) if isinstance(parent, list) else keys[-1]
        if operation["op"] == "add" and isinstance(parent, list):
            assert 0 <= last <= len(parent)
            parent.insert(last, operation["value"])
        elif operation["op"] == "add":
            parent[last] = operation["value"]
        elif operation["op"] == "remove":
            del parent[last]
        else:
            assert operation["op"] == "replace"
            assert last in parent or isinstance(parent, list)
            parent[last] = operation["value"]
    return root[""]


def typed(value: Any) -> Any:
    """Return a value in which 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return [typed(item) for item in value] if isinstance(value, list) else (type(value), value)


@given(VALUES, VALUES)
def test_applying_the_difference_gives_the_target(old: Any, new: Any) -> None:
    assert typed(apply(old, diff(old, new))) == typed(new)


@given(VALUES)
def test_the_same_value_makes_no_operation(value: Any) -> None:
    assert diff(value, copy.deepcopy(value)) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param([1, 2, 3], [1, 9, 2, 3], [{"op": "add", "path": "/1", "value": 9}], id="insert in the middle"),
        pytest.param([1, 2, 3], [1, 3], [{"op": "remove", "path": "/1"}], id="remove from the middle"),
        pytest.param([{"a": 1}], [{"a": 2}], [{"op": "replace", "path": "/0/a", "value": 2}], id="change inside"),
        pytest.param({"a/b": {}}, {"a/b": {"~": 0}}, [{"op": "add", "path": "/a~1b/~0", "value": 0}], id="escaped"),
        pytest.param({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}], id="one is not true"),
    ],
)
def test_a_difference_is_small(old: Any, new: Any, expected: list[dict[str, Any]]) -> None:
    assert diff(old, new) == expected
