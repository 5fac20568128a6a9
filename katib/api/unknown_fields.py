"""Fields that no type knows: reported with the name that was probably meant, never swallowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from katib.api.types import Model, ObjectMeta
from katib.api.types.fitting import fields_of, model_in
from katib.api.wording import closest, path_to, shown
from katib.errors import FieldError

OPAQUE_FIELDS = frozenset(
    {"annotations", "customCollector", "httpGet", "labels", "managedFields", "primaryPodLabels", "runSpec", "status"}
    | {"trainJobTemplate", "trialSpec"}
)
"""Fields whose content is not ours: the user's, Kubernetes', or the server's."""

_KUBERNETES_METADATA = frozenset({"deletionGracePeriodSeconds", "managedFields", "selfLink"})


def unknown_fields(raw: Mapping[str, Any], model: type[Model]) -> list[FieldError]:
    """Return an error for each field of the raw object that the model does not have.

    Args:
        raw: As the user wrote it. Values of the wrong type are skipped: they are errors of their own.
        model: The type to compare with.
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
    """Return the JSON names of a type's fields, each with what its value is made of; None for plain values."""
    fields: Any = {field.encode_name: model_in(field.type) for field in fields_of(model)}
    if model is ObjectMeta:
        fields.update(dict.fromkeys(_KUBERNETES_METADATA))
    return fields  # type: ignore[no-any-return]


def _unknown(path: str, key: str, model: type[Model]) -> FieldError:
    known = [name for name in _fields(model) if name != "status"]
    parent = path.rsplit(".", 1)[-1] or "the document"
    if guess := closest(key, known):
        remedy = f"did you mean {guess}?"
    elif home := _home_of(key, model, path):
        remedy = f"move it to {home}"
    else:
        remedy = f"remove it, or use one of {', '.join(known)}"
    return FieldError(path_to(path, key), f"{parent} has no field {shown(key)}", remedy, "field-unknown")


def _home_of(key: str, model: type[Model], path: str) -> str:
    """Return where a field of that name belongs, one level down: `spec.goal` belongs to `spec.objective.goal`."""
    for name, child in _fields(model).items():
        if child is not None and name != "status" and not child[1] and key in _fields(child[0]):
            return path_to(path_to(path, name), key)
    return ""
