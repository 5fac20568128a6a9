"""Patches of an object: JSON patch (RFC 6902), merge patch (RFC 7386) and Kubernetes' strategic merge patch. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from katib.engine.stores.semantics import merged
from katib.errors import invalid
from katib.model.json_values import same_json

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)

MERGE_KEYS: Mapping[str, str] = {
    **dict.fromkeys(("containerStatuses", "containers", "env", "ephemeralContainers", "imagePullSecrets"), "name"),
    **dict.fromkeys(("initContainers", "resourceClaims", "volumes"), "name"),
    "conditions": "type",
    "hostAliases": "ip",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
}
"""Field that identifies the elements of a list, by the list's name in built-in kinds."""

SETS = frozenset({"finalizers"})
"""Lists of single values that are merged as sets."""

_MOST_OPERATIONS = 10_000
_DIRECTIVES = ("$patch", "$retainKeys")
_ORDER, _REMOVALS = "$setElementOrder/", "$deleteFromPrimitiveList/"


def patched(obj: Mapping[str, Any], patch: Any, media_type: str) -> Any:
    """Return an object with a patch applied; the arguments are not modified.

    Raises:
        InvalidError: The patch is malformed, or does not fit the object.
    """
    if media_type == JSON_PATCH:
        return _json_patched(obj, patch)
    if not isinstance(patch, dict):
        raise invalid("patch", f"a {type(patch).__name__}", "give a map of the fields to change", "patch-type")
    return merged(obj, patch) if media_type == MERGE_PATCH else _strategic(obj, patch, "")


# --- JSON patch -------------------------------------------------------------------------------------------------------


def _json_patched(obj: Mapping[str, Any], operations: Any) -> Any:
    if not isinstance(operations, list) or len(operations) > _MOST_OPERATIONS:
        remedy = f"give a list of at most {_MOST_OPERATIONS} operations"
        raise invalid("patch", "not a list of operations", remedy, "patch-type")
    result: Any = copy.deepcopy(obj)
    for index, operation in enumerate(operations):
        try:
            result = _operated(result, operation)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            cause = f"operation {index} does not fit the object: {operation!r:.200}"
            raise invalid(f"patch[{index}]", cause, "read the object and patch it as it is now", "patch-fit") from error
    return result


def _operated(obj: Any, operation: Mapping[str, Any]) -> Any:
    """Return an object after one operation. A mismatch raises KeyError, IndexError, TypeError or ValueError."""
    word, path = operation["op"], _steps(operation["path"])
    if word == "test":
        if not same_json(_found(obj, path), operation["value"]):
            raise ValueError(path)
        return obj
    if word in ("add", "replace"):
        value = copy.deepcopy(operation["value"])
        if word == "replace":
            _found(obj, path)
        return _put(obj, path, value, inserts=word == "add")
    if word == "remove":
        return _taken(obj, path)
    if word in ("copy", "move"):
        source = _steps(operation["from"])
        value = copy.deepcopy(_found(obj, source))
        if word == "move":
            if path[: len(source)] == source and path != source:
                raise ValueError(path)
            obj = _taken(obj, source)
        return _put(obj, path, value, inserts=True)
    raise ValueError(word)


def _steps(pointer: str) -> list[str]:
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise ValueError(pointer)
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


def _index(values: Sequence[Any], step: str, *, inserts: bool = False) -> int:
    if step == "-" and inserts:
        return len(values)
    if not step.isdecimal() or (step != "0" and step.startswith("0")) or int(step) >= len(values) + inserts:
        raise IndexError(step)
    return int(step)


def _found(obj: Any, path: Sequence[str]) -> Any:
    for step in path:
        obj = obj[_index(obj, step)] if isinstance(obj, list) else obj[step]
    return obj


def _put(obj: Any, path: Sequence[str], value: Any, *, inserts: bool) -> Any:
    if not path:
        return value
    parent, step = _found(obj, path[:-1]), path[-1]
    if isinstance(parent, list):
        index = _index(parent, step, inserts=inserts)
        parent[index : index + (not inserts)] = [value]
    elif isinstance(parent, dict):
        parent[step] = value
    else:
        raise TypeError(step)
    return obj


def _taken(obj: Any, path: Sequence[str]) -> Any:
    parent, step = _found(obj, path[:-1]), path[-1]
    del parent[_index(parent, step) if isinstance(parent, list) else step]
    return obj


# --- strategic merge patch --------------------------------------------------------------------------------------------


def _strategic(value: Any, patch: Mapping[str, Any], path: str) -> Any:
    held = dict(value) if isinstance(value, Mapping) else {}
    directive = patch.get("$patch")
    if directive == "delete":
        return {}
    if directive == "replace":
        return {name: part for name, part in patch.items() if name != "$patch"}
    if directive not in (None, "merge"):
        place = f"{path}.$patch".lstrip(".")
        raise invalid(place, f"{directive!r} is not known", "use delete, replace or merge", "patch-directive")
    if isinstance(kept := patch.get("$retainKeys"), list):
        held = {name: part for name, part in held.items() if name in kept}
    for name, change in patch.items():
        if name.startswith(_REMOVALS):
            _remove(held, name.removeprefix(_REMOVALS), change)
        elif name not in _DIRECTIVES and not name.startswith(_ORDER):
            _merge_field(held, name, change, patch.get(_ORDER + name), path)
    for name, order in patch.items():  # a list that is only reordered
        if (field := name.removeprefix(_ORDER)) != name and field not in patch and isinstance(held.get(field), list):
            held[field] = _ordered(held[field], order, MERGE_KEYS.get(field))
    return held


def _merge_field(held: dict[str, Any], name: str, change: Any, order: Any, path: str) -> None:
    if change is None:
        held.pop(name, None)
    elif isinstance(change, dict):
        held[name] = _strategic(held.get(name), change, f"{path}.{name}")
    elif isinstance(change, list):
        held[name] = _merged_list(held.get(name), change, name, order, f"{path}.{name}")
    else:
        held[name] = change


def _remove(held: dict[str, Any], field: str, values: Any) -> None:
    if isinstance(held.get(field), list) and isinstance(values, list):
        held[field] = [value for value in held[field] if value not in values]


def _merged_list(held: Any, change: list[Any], name: str, order: Any, path: str) -> list[Any]:
    key = MERGE_KEYS.get(name)
    old = list(held) if isinstance(held, list) else []
    if name in SETS:
        return _ordered([*old, *(value for value in change if value not in old)], order, None)
    if key is None or not all(isinstance(element, dict) for element in (*old, *change)):
        return [element for element in change if not (isinstance(element, dict) and "$patch" in element)]
    if any(element.get("$patch") == "replace" for element in change):
        return [element for element in change if "$patch" not in element]
    for element in change:
        if key not in element:
            raise invalid(path.lstrip("."), f"an element has no {key}", f"name the {key} of each element", "patch-key")
        place = next((i for i, other in enumerate(old) if other.get(key) == element[key]), None)
        if element.get("$patch") == "delete":
            old = [other for other in old if other.get(key) != element[key]]
        elif place is None:
            old.append(_strategic({}, element, path))
        else:
            old[place] = _strategic(old[place], element, path)
    return _ordered(old, order, key)


def _ordered(values: list[Any], order: Any, key: str | None) -> list[Any]:
    """Return a list in the order given by a patch; unlisted elements keep their relative order."""
    if not isinstance(order, list):
        return values
    wanted = [element.get(key) if key and isinstance(element, dict) else element for element in order]

    def rank(item: tuple[int, Any]) -> tuple[int, int]:
        place, value = item
        name = value.get(key) if key and isinstance(value, dict) else value
        return (wanted.index(name), place) if name in wanted else (len(wanted), place)

    return [value for _, value in sorted(enumerate(values), key=rank)]
