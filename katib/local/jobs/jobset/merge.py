"""Strategic merge: how patches and overrides are laid over a template. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "replicatedJobs": "name",
    "schedulingGates": "name",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
"""Lists that are merged entry by entry, and the field that says which entries are the same. Others are replaced."""

_WHOLE: Final = frozenset({"volumes"})
"""Lists whose entries replace those of the same key: two sources cannot be one volume."""


def merged(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with a patch laid over it: mappings are merged, null removes, entries of lists meet by name."""
    result = dict(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        elif key in _KEYS and isinstance(value, list) and isinstance(result.get(key), list):
            result[key] = merged_list(result[key], value, _KEYS[key], whole=key in _WHOLE)
        else:
            result[key] = value
    return result


def merged_list(base: Sequence[Any], patch: Sequence[Any], key: str, *, whole: bool = False) -> list[Any]:
    """Return a list of mappings with those of a patch laid over the entries that have the same key; new ones follow.

    Args:
        base: The list.
        patch: What is laid over it.
        key: The field that says which entries are the same.
        whole: Entries replace each other instead of being merged.
    """
    result = list(base)
    places = {name: i for i, item in enumerate(result) if (name := _text(item, key))}
    for item in patch:
        place = places.get(_text(item, key))
        if place is None:
            result.append(item)
        else:
            result[place] = item if whole else merged(result[place], item)
    return result


def _text(item: object, key: str) -> str:
    """Return the text under a key; empty where there is none, as in a malformed list."""
    value = item.get(key) if isinstance(item, Mapping) else None
    return value if isinstance(value, str) else ""
