"""Configuration files: base of their models, and a reader that reports all errors at once.

For a rule beyond types, the validator of a model raises through `broken`, so that one reading reports all errors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from katib.errors import FieldError, InvalidError
from katib.model.json_values import without_nulls
from katib.model.wording import did_you_mean, path_of, shown, wrong_type
from katib.model.yaml_text import parse_one

HOST_AND_PORT = re.compile(r"[^\s:/]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")

_WANTED = {"dict": "mapping", "model": "mapping", "string": "text", "tuple": "list"}
"""Pydantic's words that differ from ours: `int_type`, `int_parsing` and `int_from_float` want an `int`."""

Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]


class ConfigModel(BaseModel):
    """Base of all parts: camel case in the file, frozen, unknown fields are errors."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


Config = TypeVar("Config", bound=ConfigModel)


def broken(cause: str, remedy: str, origin: str, *, at: str = "") -> PydanticCustomError:
    """Return the error of a rule; `at` names the field if the rule belongs to the whole entry."""
    return PydanticCustomError("rule", "{cause}", {"cause": cause, "remedy": remedy, "origin": origin, "at": at})


def read_configuration(model: type[Config], text: str, source: str) -> Config:
    """Read the text of a configuration; an empty one is the default.

    Args:
        model: Of the whole file.
        text: YAML or JSON.
        source: Name in errors: a file, or a ConfigMap and its key.

    Raises:
        InvalidError: All errors, each with the source and the field.
    """
    data = parse_one(text, source)
    try:
        return model() if data is None else model.model_validate(without_nulls(data))
    except ValidationError as failure:
        details = failure.errors(include_url=False)
        raise InvalidError(_field_error(detail, source, model) for detail in details) from failure


def _field_error(detail: ErrorDetails, source: str, model: type[ConfigModel]) -> FieldError:
    location = detail["loc"]
    path, kind, context = path_of(location), detail["type"], detail.get("ctx", {})
    origin = "config-type"
    if kind == "rule":
        path = ".".join(filter(None, (path, context["at"])))
        cause, remedy, origin = context["cause"], context["remedy"], context["origin"]
    elif kind == "extra_forbidden":
        cause, origin = "unknown field", "config-field"
        remedy = did_you_mean(str(location[-1]), _siblings(location, model))
    elif kind == "missing":
        cause, remedy, origin = "missing", "set it", "config-missing"
    elif kind == "literal_error":
        expected = context["expected"].replace("'", "")
        cause, remedy, origin = f"{shown(detail['input'])} is not allowed here", f"write {expected}", "config-kind"
    else:
        wanted = _WANTED.get(kind.partition("_")[0], kind.partition("_")[0])
        cause, remedy = wrong_type(detail["input"], wanted, detail["msg"].lower())
    return FieldError(f"{source}: {path}" if path else source, cause, remedy, origin)


def _siblings(location: Sequence[str | int], model: type[BaseModel]) -> list[str]:
    """Return the known fields at the location of an unknown one."""
    for part in location[:-1]:
        if isinstance(part, str):
            field = next(field for field in model.model_fields.values() if field.alias == part)
            model = next(filter(None, map(_model_in, (field.annotation, *get_args(field.annotation)))))
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model in `Model`, `tuple[Model, ...]` or an optional one of these."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


class RetentionConfig(ConfigModel):
    """Retention of the logs of ended trials. The metrics in a trial's status are kept.

    Attributes:
        max_age_seconds: Maximum time since the end of the trial; None for no limit.
        max_trials: Number of logs kept per experiment, those of the trials that ended last; None for all.
    """

    max_age_seconds: Annotated[int, Strict(), Field(ge=1)] | None = None
    max_trials: Annotated[int, Strict(), Field(ge=1)] | None = None
