"""Plain data to an Experiment or another kind of ours, keeping every part that can be read.

A field of the wrong type is reported and left out, so that the rules about all other fields still get their say and a
user sees all errors of a file at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import convert

from katib.api.json_values import without_nulls
from katib.api.types import Experiment, Resource
from katib.api.types.fitting import Misfit, fitted
from katib.api.types.model import prepare
from katib.api.unknown_fields import OPAQUE_FIELDS
from katib.api.wording import path_of, shown, wrong_type
from katib.errors import FieldError

R = TypeVar("R", bound=Resource)

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


def decode(raw: Mapping[str, Any]) -> tuple[Experiment, list[FieldError]]:
    """Return an experiment as `decode_as` does."""
    return decode_as(raw, Experiment)


def decode_as(raw: Mapping[str, Any], model: type[R]) -> tuple[R, list[FieldError]]:
    """Return an object without status and server's fields, and an error for each value of the wrong type.

    Values of the wrong type are replaced by nothing, or in a list by an empty stand-in, so that indices stay true.
    """
    data = without_nulls(raw, OPAQUE_FIELDS)
    data.pop("status", None)
    if isinstance(metadata := data.get("metadata"), dict):
        data["metadata"] = {key: value for key, value in metadata.items() if key not in SERVER_FIELDS}
    misfits: list[Misfit] = []
    prepare(model)
    found = convert(fitted(data, model, misfits) or {}, model)
    return found, [_field_error(misfit) for misfit in misfits]


def decode_stored(obj: Mapping[str, Any]) -> Experiment:
    """Return an experiment as it was accepted and stored, with its status; what is null was not given.

    Raises:
        msgspec.ValidationError: A field has the wrong type.
    """
    return Experiment.decode(without_nulls(obj, OPAQUE_FIELDS))


def _field_error(misfit: Misfit) -> FieldError:
    path = path_of(misfit.location)
    if misfit.wanted == "int32":
        cause = f"{shown(misfit.value)} does not fit into 32 bits"
        return FieldError(path, cause, "use a smaller number", "value-range")
    return FieldError(path, *wrong_type(misfit.value, misfit.wanted), "value-type")
