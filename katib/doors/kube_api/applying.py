"""Server-side apply: merges a manager's fields, removes fields it no longer applies, and detects conflicts. Pure.

The owners of fields are in `metadata.managedFields`, in Kubernetes' form `FieldsV1`. Here a set of fields is a set of
paths, each a tuple of steps: `f:spec` a field, `k:{"name":"main"}` the list element with this key, `v:"a"` a value of a
set, and `.` after an element the element itself. Lists without a key are owned as a whole.

Fields are tracked from the first apply on: existing fields then belong to the manager `before-first-apply`, as on a
cluster. The controllers' writes to the store are not tracked.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from katib.doors.kube_api.patches import MERGE_KEYS, SETS
from katib.engine.runtime.objects import Object

Json = dict[str, Any]
Path = tuple[str, ...]
Fields = frozenset[Path]

BEFORE_FIRST = "before-first-apply"
APPLY, UPDATE = "Apply", "Update"

_ITSELF = "."
_MISSING = object()
_UNOWNED = frozenset({"apiVersion", "kind", "metadata", "status"})
_SERVERS = frozenset(
    ("creationTimestamp", "deletionTimestamp", "generateName", "generation", "managedFields", "name", "namespace")
) | {"resourceVersion", "selfLink", "uid"}


class ConflictsError(Exception):
    """Other managers own fields to be changed.

    Attributes:
        conflicts: Manager and path of each, such as `.spec.maxTrialCount`.
    """

    def __init__(self, conflicts: Sequence[tuple[str, str]]) -> None:
        super().__init__(f"{len(conflicts)} conflicts")
        self.conflicts = tuple(conflicts)


def applied(
    old: Object | None,
    config: Json,
    manager: str,
    now: str,
    *,
    force: bool,
    is_keyed: bool,
    settled: Object | None = None,
) -> Json:
    """Return an object after a manager applied a configuration.

    Args:
        old: The stored object; None for a new one.
        now: The time, in the form of objects.
        force: Whether to take over fields of other managers.
        is_keyed: Whether elements of lists are merged by their key, as in built-in kinds.
        settled: The result as it would be stored, if defaults make a difference; fields that are stored so already do
            not change.

    Raises:
        ConflictsError: Other managers own fields with other values.
    """
    wanted = fields_of(config, is_keyed=is_keyed)
    entries = _entries(old, now, is_keyed=is_keyed) if old is not None else []
    mine = [entry for entry in entries if _is_mine(entry, manager, APPLY)]
    others = [entry for entry in entries if not _is_mine(entry, manager, APPLY)]
    taken = frozenset(path for path in wanted if old is None or _differs(old, settled or config, path))
    conflicts = [
        (entry["manager"], path)
        for entry in others
        for path in sorted(_shown(path) for path in read_fields(entry) & taken)
    ]
    if conflicts and not force:
        raise ConflictsError(conflicts)
    result = _merged(copy.deepcopy(dict(old or {})), config, is_keyed=is_keyed)
    owned_by_others = frozenset().union(*(read_fields(entry) for entry in others))
    given_up = frozenset().union(*map(read_fields, mine)) - wanted - owned_by_others
    for path in sorted(given_up, key=lambda path: (path[-1] != _ITSELF, -len(path))):  # an element before its key
        _remove(result, path)
    kept = [_with_fields(entry, read_fields(entry) - taken, entry["time"]) for entry in others]
    entry = _entry(manager, APPLY, config["apiVersion"], wanted, now)
    if mine and read_fields(mine[0]) == wanted:
        entry = mine[0]
    return _with_entries(result, [*(entry for entry in kept if entry["fieldsV1"]), entry])


def updated(old: Object, new: Json, manager: str, now: str, *, is_keyed: bool) -> Json:
    """Return an object after a write other than apply, with its managers updated, if it has any."""
    if not old["metadata"].get("managedFields"):
        return new
    if new["metadata"].get("managedFields") == []:  # a client's request to forget them
        return _with_entries(new, [])
    before, after = fields_of(old, is_keyed=is_keyed), fields_of(new, is_keyed=is_keyed)
    changed = frozenset(path for path in after if _differs(old, new, path))
    entries, mine = [], None
    for entry in _entries(old, now, is_keyed=is_keyed):
        fields = (read_fields(entry) - changed) - (before - after)
        if _is_mine(entry, manager, UPDATE):
            changed |= fields
            mine = entry
        elif fields:
            entries.append(_with_fields(entry, fields, entry["time"]))
    if mine is not None and read_fields(mine) == changed:
        entries.append(mine)
    elif changed:
        entries.append(_entry(manager, UPDATE, new["apiVersion"], changed, now))
    return _with_entries(new, entries)


def fields_of(obj: Object, *, is_keyed: bool) -> Fields:
    """Return the fields of an object, except those that only the server writes, and its status."""
    body: Json = {name: part for name, part in obj.items() if name not in _UNOWNED}
    metadata = {name: part for name, part in (obj.get("metadata") or {}).items() if name not in _SERVERS}
    if metadata:
        body["metadata"] = metadata
    return frozenset(path for path in _paths(body, "", is_keyed=is_keyed) if path)


def read_fields(entry: Mapping[str, Any]) -> Fields:
    return frozenset(_read(entry.get("fieldsV1") or {}))


def _read(fields: Mapping[str, Any]) -> Iterator[Path]:
    for step, inner in fields.items():
        if inner:
            yield from ((step, *path) for path in _read(inner))
        else:
            yield (step,)


def _paths(value: Any, name: str, *, is_keyed: bool) -> Iterator[Path]:
    if isinstance(value, Mapping) and value:
        for field, part in value.items():
            yield from ((f"f:{field}", *path) for path in _paths(part, field, is_keyed=is_keyed))
    elif isinstance(value, list) and value and (key := _key_of(value, name, is_keyed=is_keyed)):
        for element in value:
            step = _step(element, key)
            yield (step, _ITSELF) if key else (step,)
            if isinstance(element, Mapping):
                yield from ((step, *path) for path in _paths(element, "", is_keyed=is_keyed))
    else:
        yield ()


def _key_of(values: Sequence[Any], name: str, *, is_keyed: bool) -> str:
    """Return the field that identifies the elements of a list; `.` for a set, empty for one owned as a whole."""
    if name in SETS:
        return _ITSELF
    key = MERGE_KEYS.get(name, "") if is_keyed else ""
    return key if all(isinstance(element, Mapping) and key in element for element in values) else ""


def _step(element: Any, key: str) -> str:
    if key == _ITSELF:
        return f"v:{json.dumps(element)}"
    return f"k:{json.dumps({key: element[key]}, separators=(',', ':'))}"


def _found(obj: Any, path: Path) -> Any:
    """Return the value at a path; `_MISSING` if there is none."""
    for step in path:
        if step == _ITSELF:
            return True
        if step.startswith("f:"):
            obj = obj.get(step[2:], _MISSING) if isinstance(obj, Mapping) else _MISSING
        else:
            obj = (
                next((element for element in obj if _is_at(element, step)), _MISSING)
                if isinstance(obj, list)
                else _MISSING
            )
        if obj is _MISSING:
            return _MISSING
    return obj


def _is_at(element: Any, step: str) -> bool:
    wanted = json.loads(step[2:])
    if step.startswith("v:"):
        return bool(element == wanted)
    return isinstance(element, Mapping) and wanted.items() <= element.items()


def _differs(old: Object, new: Object, path: Path) -> bool:
    return bool(_found(old, path) != _found(new, path))


def _remove(obj: Any, path: Path) -> None:
    """Remove the value at a path, if there is one."""
    if path[-1] == _ITSELF:
        path = path[:-1]
    parent, step = _found(obj, path[:-1]), path[-1]
    if isinstance(parent, dict) and step.startswith("f:"):
        parent.pop(step[2:], None)
    elif isinstance(parent, list):
        parent[:] = [element for element in parent if not _is_at(element, step)]


def _merged(held: Any, config: Any, name: str = "", *, is_keyed: bool) -> Any:
    if isinstance(held, dict) and isinstance(config, dict):
        return held | {
            field: _merged(held.get(field), part, field, is_keyed=is_keyed) for field, part in config.items()
        }
    if isinstance(held, list) and isinstance(config, list):
        key = _key_of([*held, *config], name, is_keyed=is_keyed)
        if key == _ITSELF:
            return [*held, *(value for value in config if value not in held)]
        if key:
            given = {_step(element, key): element for element in config}
            kept = [_merged(e, given.pop(_step(e, key), {}), is_keyed=is_keyed) for e in held]
            return [*kept, *given.values()]
    return copy.deepcopy(config)


def _entries(old: Object, now: str, *, is_keyed: bool) -> list[Json]:
    found = old["metadata"].get("managedFields")
    if found:
        return [dict(entry) for entry in found if isinstance(entry, Mapping) and "fieldsV1" in entry]
    return [_entry(BEFORE_FIRST, UPDATE, old["apiVersion"], fields_of(old, is_keyed=is_keyed), now)]


def _entry(manager: str, operation: str, api_version: str, fields: Fields, now: str) -> Json:
    entry: Json = {"manager": manager, "operation": operation, "apiVersion": api_version}
    return _with_fields({**entry, "fieldsType": "FieldsV1"}, fields, now)


def _with_fields(entry: Json, fields: Fields, time: str) -> Json:
    root: Json = {}
    for path in sorted(fields):
        place = root
        for step in path:
            place = place.setdefault(step, {})
    return {**entry, "time": time, "fieldsV1": root}


def _is_mine(entry: Mapping[str, Any], manager: str, operation: str) -> bool:
    return (entry.get("manager"), entry.get("operation")) == (manager, operation)


def _with_entries(obj: Json, entries: Sequence[Json]) -> Json:
    metadata = {name: part for name, part in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": {**metadata, "managedFields": list(entries)} if entries else metadata}


def _shown(path: Path) -> str:
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += f".{step[2:]}"
        elif step != _ITSELF:
            text += f"[{step[2:]}]"
    return text
