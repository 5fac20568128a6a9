"""The difference of two JSON values as a JSON Patch (RFC 6902): add, remove and replace, applied in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from katib.api.json_values import same_json

Operation = dict[str, Any]


def diff(old: Any, new: Any) -> list[Operation]:
    """Return the operations that make `new` of `old`; none when they are the same JSON value.

    Elements of lists are compared in place, after what both lists have in common at their beginnings and ends.
    """
    return list(_diff(old, new, ""))


def _diff(old: Any, new: Any, path: str) -> Iterator[Operation]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _diff_maps(old, new, path)
    elif _is_list(old) and _is_list(new):
        yield from _diff_lists(old, new, path)
    elif not same_json(old, new):
        yield {"op": "replace", "path": path, "value": new}


def _diff_maps(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Operation]:
    for key, value in old.items():
        if key in new:
            yield from _diff(value, new[key], f"{path}/{_escaped(key)}")
        else:
            yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
    for key, value in new.items():
        if key not in old:
            yield {"op": "add", "path": f"{path}/{_escaped(key)}", "value": value}


def _diff_lists(old: Sequence[Any], new: Sequence[Any], path: str) -> Iterator[Operation]:
    shorter = min(len(old), len(new))
    start = _common(old, new, shorter)
    tail = _common(old[::-1], new[::-1], shorter - start)
    kept = shorter - start - tail
    for i in range(start, start + kept):
        yield from _diff(old[i], new[i], f"{path}/{i}")
    at = start + kept
    for i in reversed(range(at, len(old) - tail)):
        yield {"op": "remove", "path": f"{path}/{i}"}
    for i in range(at, len(new) - tail):
        yield {"op": "add", "path": f"{path}/{i}", "value": new[i]}


def _common(old: Sequence[Any], new: Sequence[Any], limit: int) -> int:
    """Return how many elements at the beginning are the same in both, at most `limit`."""
    return next((i for i in range(limit) if not same_json(old[i], new[i])), limit)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
