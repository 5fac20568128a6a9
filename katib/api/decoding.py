"""Plain data to an Experiment, keeping every part that can be read.

A field of the wrong type is reported and left out, so that the rules about all other fields still get their say and a
user sees all errors of a file at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from katib.api.json_values import without_nulls
from katib.api.types import Experiment
from katib.api.unknown_fields import OPAQUE_FIELDS
from katib.api.wording import family_of, path_of, shown, wrong_type
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

_STAND_INS: dict[str, Any] = {"dict": {}, "model": {}, "float": 0.0, "int": 0, "string": "", "bool": False}


def decode(raw: Mapping[str, Any]) -> tuple[Experiment, list[FieldError]]:
    """Return the experiment without status and server's fields, and an error for each value of the wrong type.

    Values of the wrong type are replaced by nothing, or in a list by an empty stand-in, so that indices stay true.
    """
    data = without_nulls(raw, OPAQUE_FIELDS)
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


def decode_stored(obj: Mapping[str, Any]) -> Experiment:
    """Return an experiment as it was accepted and stored, with its status; what is null was not given.

    Raises:
        pydantic.ValidationError: A field has the wrong type.
    """
    return Experiment.decode(without_nulls(obj, OPAQUE_FIELDS))


def _field_error(detail: ErrorDetails) -> FieldError:
    path, kind = path_of(detail["loc"]), detail["type"]
    if kind in {"less_than", "greater_than_equal"}:
        return FieldError(
            path, f"{shown(detail['input'])} does not fit into 32 bits", "use a smaller number", "value-range"
        )
    return FieldError(path, *wrong_type(detail), "value-type")


def _mended(data: Any, location: tuple[int | str, ...], kind: str) -> Any:
    """Return a copy of the data without the value at a location; in a list a stand-in takes its place."""
    first, *rest = location
    if isinstance(first, int):
        child = _mended(data[first], tuple(rest), kind) if rest else _STAND_INS.get(family_of(kind), "")
        return [*data[:first], child, *data[first + 1 :]]
    if not rest:
        return {key: value for key, value in data.items() if key != first}
    return {**data, first: _mended(data[first], tuple(rest), kind)}
