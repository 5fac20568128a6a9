"""Decoding of plain data to an Experiment or another kind of ours, keeping every readable part.

A field of the wrong type is reported and left out, so that the rules about all other fields still apply and a user sees
all errors of a file at once. Unknown fields are reported with the name that was probably meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

from msgspec import convert

from katib.errors import FieldError
from katib.model.json_values import without_nulls
from katib.model.types import Experiment, Model, ObjectMeta, Resource
from katib.model.types.fitting import Misfit, fields_of, fitted, model_in
from katib.model.types.model import prepare
from katib.model.wording import closest, path_of, path_to, shown, wrong_type

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
"""Metadata that the server writes; ignored, so that an exported experiment may be submitted again."""


def decode(raw: Mapping[str, Any]) -> tuple[Experiment, list[FieldError]]:
    """Return an experiment as `decode_as` does.

    `search.categorical` of the SDK of Katib 0.19 writes its list into `distribution`: it is read as `list`.
    """
    spec = raw.get("spec")
    if isinstance(spec, dict) and isinstance(parameters := spec.get("parameters"), list):
        spec = {**spec, "parameters": [_with_list(parameter) for parameter in parameters]}
        raw = {**raw, "spec": spec}
    return decode_as(raw, Experiment)


def _with_list(parameter: Any) -> Any:
    space = parameter.get("feasibleSpace") if isinstance(parameter, dict) else None
    if not isinstance(space, dict) or not isinstance(space.get("distribution"), list) or space.get("list"):
        return parameter
    rest = {name: value for name, value in space.items() if name != "distribution"}
    return {**parameter, "feasibleSpace": {**rest, "list": space["distribution"]}}


def decode_as(raw: Mapping[str, Any], model: type[R]) -> tuple[R, list[FieldError]]:
    """Return an object without status and server fields, and an error for each value of the wrong type.

    Values of the wrong type are dropped, or replaced by an empty stand-in inside lists, so that indices stay true.
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
    """Return an experiment as it was accepted and stored, with its status; null means absent.

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


OPAQUE_FIELDS = frozenset(
    {"annotations", "customCollector", "httpGet", "labels", "managedFields", "primaryPodLabels", "runSpec", "status"}
    | {"trainJobTemplate", "trialSpec"}
)
"""Fields whose content belongs to the user, Kubernetes or the server."""

_KUBERNETES_METADATA = frozenset({"deletionGracePeriodSeconds", "managedFields", "selfLink"})


def unknown_fields(raw: Mapping[str, Any], model: type[Model]) -> list[FieldError]:
    """Return an error for each field of the raw object that the model does not have.

    Args:
        raw: As the user wrote it. Values of the wrong type are skipped: they have errors of their own.
    """
    return list(_walk(raw, model, ""))


def _walk(raw: Mapping[str, Any], model: type[Model], path: str) -> Iterator[FieldError]:
    fields = _fields(model)
    for key, value in raw.items():
        if key not in fields:
            yield _unknown(path, key, model)
        elif key not in OPAQUE_FIELDS and (child := fields[key]) is not None:
            (inner, repeated), child_path = child, path_to(path, key)
            if not repeated and isinstance(value, dict):
                yield from _walk(value, inner, child_path)
            elif repeated and isinstance(value, list):
                for i, element in enumerate(value):
                    if isinstance(element, dict):
                        yield from _walk(element, inner, f"{child_path}[{i}]")


@cache
def _fields(model: type[Model]) -> dict[str, tuple[type[Model], bool] | None]:
    """Return the JSON names of a type's fields, each with the model of its value and whether it is a list, or None."""
    fields: Any = {field.encode_name: model_in(field.type) for field in fields_of(model)}
    if model is ObjectMeta:
        fields.update(dict.fromkeys(_KUBERNETES_METADATA))
    return fields  # type: ignore[no-any-return]


def _unknown(path: str, key: str, model: type[Model]) -> FieldError:
    known = [name for name in _fields(model) if name != "status"]
    parent = path.rsplit(".", 1)[-1] or "the document"
    if homes := " or ".join(_homes_of(key, model, path)):
        remedy = f"move it to {homes}"
    elif guess := closest(key, known):
        remedy = f"did you mean {guess}?"
    else:
        remedy = f"remove it, or use one of {', '.join(known)}"
    return FieldError(path_to(path, key), f"{parent} has no field {shown(key)}", remedy, "field-unknown")


def _homes_of(key: str, model: type[Model], path: str) -> Iterator[str]:
    """Yield paths one level down at which a field of that name is valid: `spec.objective.goal` for `spec.goal`."""
    for name, child in _fields(model).items():
        if child is not None and name != "status" and not child[1] and key in _fields(child[0]):
            yield path_to(path_to(path, name), key)
