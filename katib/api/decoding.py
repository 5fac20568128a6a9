"""Plain data to an Experiment, keeping every part that can be read.

A field of the wrong type is reported and left out, so that the rules about all other fields still get their say and a
user sees all errors of a file at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from katib.api.types import Experiment
from katib.api.unknown_fields import OPAQUE_FIELDS
from katib.api.wording import path_to, shown
from katib.api.yaml_text import MAX_DEPTH, MAX_NODES
from katib.errors import FieldError

SERVER_FIELDS = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
"""Metadata that the server writes: an exported experiment may be submitted again."""

_ROUNDS = 8
"""A value hidden in a list can surface in a second round; nothing known needs a third."""

_REMEDIES = {
    "bool": ("is not true or false", "write true or false without quotes"),
    "dict": ("is not a mapping", "write its fields as key: value"),
    "float": ("is not a number", "write a number without quotes"),
    "int": ("is not a whole number", "write a whole number without quotes"),
    "list": ("is not a list", "write a list, one element a line with a dash"),
    "model": ("is not a mapping", "write its fields as key: value"),
    "string": ("is not text", "put it in quotes"),
    "tuple": ("is not a list", "write a list, one element a line with a dash"),
}
_STAND_INS: dict[str, Any] = {"dict": {}, "model": {}, "float": 0.0, "int": 0, "string": "", "bool": False}


def check_plain(value: object) -> list[FieldError]:
    """Return what keeps a value from being JSON within bounds: foreign types, broken text, excess of depth or size."""
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


def decode(raw: Mapping[str, Any]) -> tuple[Experiment, list[FieldError]]:
    """Return the experiment without status and server's fields, and an error for each value of the wrong type.

    Values of the wrong type are replaced by nothing, or in a list by an empty stand-in, so that indices stay true.
    """
    data = _without_nulls(raw)
    data.pop("status", None)
    if isinstance(metadata := data.get("metadata"), dict):
        data["metadata"] = {key: value for key, value in metadata.items() if key not in SERVER_FIELDS}
    errors: list[FieldError] = []
    for _ in range(_ROUNDS):
        try:
            return Experiment.decode(data), errors
        except ValidationError as failure:
            details = failure.errors(include_url=False)
            errors.extend(map(_field_error, details))
            for detail in details:
                data = _mended(data, detail["loc"], detail["type"])
    return Experiment(), errors


def _family(kind: str) -> str:
    """Return what pydantic wanted: `int` for `int_type`, `int_parsing` and `int_from_float`."""
    return kind.partition("_")[0]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _without_nulls(data: Mapping[str, Any]) -> dict[str, Any]:
    """Drop fields that are null, which in Kubernetes means absent. Fields that are not ours stay as they are."""
    return {key: _kept(key, value) for key, value in data.items() if value is not None}


def _kept(key: str, value: Any) -> Any:
    if key in OPAQUE_FIELDS:
        return value
    if isinstance(value, dict):
        return _without_nulls(value)
    if isinstance(value, list):
        return [_without_nulls(element) if isinstance(element, dict) else element for element in value]
    return value


def _field_error(detail: ErrorDetails) -> FieldError:
    path = ""
    for part in detail["loc"]:
        path = f"{path}[{part}]" if isinstance(part, int) else path_to(path, part)
    kind = detail["type"]
    value = shown(detail["input"])
    if kind in {"less_than", "greater_than_equal"}:
        return FieldError(path, f"{value} does not fit into 32 bits", "use a smaller number", "value-range")
    cause, remedy = _REMEDIES.get(_family(kind), (detail["msg"].lower(), "mend the value"))
    return FieldError(path, f"{value} {cause}", remedy, "value-type")


def _mended(data: Any, location: tuple[int | str, ...], kind: str) -> Any:
    """Return a copy of the data without the value at a location; in a list a stand-in takes its place."""
    first, *rest = location
    if isinstance(first, int):
        child = _mended(data[first], tuple(rest), kind) if rest else _STAND_INS.get(_family(kind), "")
        return [*data[:first], child, *data[first + 1 :]]
    if not rest:
        return {key: value for key, value in data.items() if key != first}
    return {**data, first: _mended(data[first], tuple(rest), kind)}
