"""Strict validation of a Job by its schema: fields that Kubernetes would drop or refuse are errors, with their paths.

Text with a placeholder fits anywhere, since its value is not known yet, but text around one is not a list. Null counts
as not given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from katib.errors import FieldError
from katib.model.templates import has_placeholder
from katib.model.templates.placeholders import split_text
from katib.model.wording import closest, path_to, shown

POD_TEMPLATE: Final = "V1PodTemplateSpec"
"""The model of a pod template."""


def check_job_schema(job: Mapping[str, Any], path: str) -> list[FieldError]:
    """Return unknown fields, values of the wrong type, and missing fields.

    Args:
        job: A `batch/v1` Job, with or without placeholders.
        path: Its path, such as `spec.trialTemplate.trialSpec`.
    """
    return check_value(job, job_schema().root, path)


def check_value(value: Any, kind: str, path: str) -> list[FieldError]:
    """Return the same errors for any part of a Job."""
    return list(_check(value, kind, path))


def _check(value: Any, kind: str, path: str) -> Iterator[FieldError]:
    if value is None or (has_placeholder(value) and not (kind.startswith("[]") and "".join(split_text(value)[::2]))):
        return
    if kind in _SCALARS:
        fits, wanted = _SCALARS[kind]
        if not fits(value):
            yield _wrong_type(path, value, wanted)
    elif kind.startswith("[]"):
        yield from _check_list(value, kind[2:], path)
    elif kind.startswith("{}"):
        yield from _check_map(value, kind[2:], path)
    else:
        yield from _check_object(value, job_schema().models[kind], path)


def _check_list(value: Any, kind: str, path: str) -> Iterator[FieldError]:
    if not isinstance(value, list):
        yield _wrong_type(path, value, "a list")
        return
    for i, item in enumerate(value):
        if item is None:
            yield _wrong_type(f"{path}[{i}]", item, _words_for(kind))
        yield from _check(item, kind, f"{path}[{i}]")


def _check_map(value: Any, kind: str, path: str) -> Iterator[FieldError]:
    if not isinstance(value, Mapping):
        yield _wrong_type(path, value, "a mapping")
        return
    for key, item in value.items():
        yield from _check(item, kind, path_to(path, str(key)))


def _check_object(value: Any, model: SchemaModel, path: str) -> Iterator[FieldError]:
    if not isinstance(value, Mapping):
        yield _wrong_type(path, value, "a mapping")
        return
    for key, item in value.items():
        if key in model.fields:
            yield from _check(item, model.fields[key], path_to(path, key))
        elif not has_placeholder(key):
            yield _unknown_field(path_to(path, str(key)), str(key), model)
    for key in model.required:
        if value.get(key) is None:
            remedy = f"give it: a {model.name} needs {key}"
            yield FieldError(path_to(path, key), "it is missing", remedy, "job-field-missing")


def _unknown_field(path: str, key: str, model: SchemaModel) -> FieldError:
    close = closest(key, model.fields)
    remedy = f"did you mean {close}" if close else f"remove it: a {model.name} has no such field"
    return FieldError(path, "unknown field", remedy, "job-field-unknown")


def _wrong_type(path: str, value: Any, wanted: str) -> FieldError:
    is_scalar = isinstance(value, str | int | float)
    remedy = "write it in quotes" if wanted == "text" and is_scalar else _EXAMPLES.get(wanted, f"give {wanted}")
    return FieldError(path, f"{shown(value)} is not {wanted}", remedy, "job-field-type")


def _words_for(kind: str) -> str:
    if kind in _SCALARS:
        return _SCALARS[kind][1]
    return "a list" if kind.startswith("[]") else "a mapping"


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_quantity(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


_SCALARS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "text": (lambda value: isinstance(value, str), "text"),
    "integer": (_is_integer, "a whole number"),
    "boolean": (lambda value: isinstance(value, bool), "true or false"),
    "integer-or-text": (lambda value: isinstance(value, str) or _is_integer(value), "a whole number or text"),
    "quantity": (_is_quantity, "a quantity"),
    "any": (lambda _: True, "anything"),
}

_EXAMPLES: Final = {
    "a quantity": 'write it as 2, "500m" or "1Gi"',
    "a list": "write a list, one element a line with a dash",
}


@dataclass(frozen=True, slots=True)
class SchemaModel:
    """One part of a Job, such as a container.

    Attributes:
        name: Name in the API, without version: `Container`.
        fields: Type of each field: `text`, `integer`, `boolean`, `integer-or-text`, `quantity`, `any`, or the key of
            another model; with the prefix `[]` a list, with `{}` a map of them.
    """

    name: str
    fields: Mapping[str, str]
    required: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobSchema:
    """All models, by their key, such as `V1Container`."""

    root: str
    models: Mapping[str, SchemaModel]


@cache
def job_schema() -> JobSchema:
    """Return the schema; read once, on first use."""
    raw = json.loads(files(__package__).joinpath("job.json").read_bytes())
    models = {
        key: SchemaModel(
            key.removeprefix("V1").removeprefix("alpha3"), model["fields"], tuple(model.get("required", ()))
        )
        for key, model in raw["models"].items()
    }
    return JobSchema(raw["root"], models)
