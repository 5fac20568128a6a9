"""Plain JSON values: their bounds, the meaning of null, and equality."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from katib.errors import FieldError
from katib.model.wording import path_to, shown

MAX_DEPTH = 64
"""Maximum nesting. A Job is eight levels deep, an Argo workflow fewer than thirty."""
MAX_NODES = 200_000
"""Maximum number of values in one text, aliases counted as often as they are used."""


def without_nulls(value: Any, opaque: Collection[str] = ()) -> Any:
    """Return a value without fields that are null, which in Kubernetes means absent.

    Args:
        value: Any JSON value; it is not modified.
        opaque: Names of fields whose content is kept as written.
    """
    if isinstance(value, dict):
        return {
            key: field if key in opaque or not isinstance(field, dict | list) else without_nulls(field, opaque)
            for key, field in value.items()
            if field is not None
        }
    if isinstance(value, list):
        return [without_nulls(element, opaque) if isinstance(element, dict | list) else element for element in value]
    return value


def same_json(left: Any, right: Any) -> bool:
    """Return whether two values are the same JSON; Python alone would call 1, 1.0 and true equal."""
    if left.__class__ is not right.__class__ or left != right:
        return False
    if left.__class__ is dict:
        return all(map(same_json, left.values(), map(right.get, left)))
    if left.__class__ is list:
        return all(map(same_json, left, right))
    return True


def check_plain(value: object) -> list[FieldError]:
    """Return errors for everything in a value that is not JSON within bounds: foreign types, broken text, excess."""
    errors: list[FieldError] = []
    pending: list[tuple[object, str, int]] = [(value, "", 1)]
    for _ in range(MAX_NODES):
        if not pending:
            return errors
        value, path, depth = pending.pop()
        if depth > MAX_DEPTH:
            return [
                FieldError(path[:60], f"it is nested deeper than {MAX_DEPTH} levels", "flatten it", "value-nesting")
            ]
        if isinstance(value, dict):
            errors.extend(_key_errors(value, path))
            pending.extend((child, path_to(path, str(key)), depth + 1) for key, child in value.items())
        elif isinstance(value, list | tuple):
            pending.extend((child, f"{path}[{i}]", depth + 1) for i, child in enumerate(value))
        else:
            errors.extend(_scalar_errors(value, path))
    return [FieldError(path[:60], f"it holds more than {MAX_NODES} values", "make it smaller", "value-nesting")]


def _key_errors(mapping: dict[Any, Any], path: str) -> list[FieldError]:
    return [
        FieldError(path, f"the key {shown(key)} is not text", "put it in quotes", "value-type")
        for key in mapping
        if not (isinstance(key, str) and _is_unicode(key))
    ]


def _scalar_errors(value: object, path: str) -> list[FieldError]:
    if isinstance(value, str):
        if _is_unicode(value):
            return []
        return [FieldError(path, f"{shown(value)} is half a character", "write whole Unicode", "value-type")]
    if value is None or isinstance(value, bool | int | float):
        return []
    return [FieldError(path, f"{type(value).__name__} is not a JSON value", "write text or a number", "value-type")]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
