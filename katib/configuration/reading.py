"""Text to a KatibConfig, with all that is wrong with it at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from katib.api.wording import did_you_mean, path_to, shown
from katib.api.yaml_text import parse_yaml
from katib.configuration.models import KatibConfig
from katib.errors import FieldError, InvalidError

_WRONG_TYPE = {
    "bool": ("is not true or false", "write true or false without quotes"),
    "dict": ("is not a mapping", "write its fields as key: value"),
    "int": ("is not a whole number", "write a whole number without quotes"),
    "model": ("is not a mapping", "write its fields as key: value"),
    "string": ("is not text", "put it in quotes"),
    "tuple": ("is not a list", "write a list, one element a line with a dash"),
}


def read_katib_config(text: str, source: str) -> KatibConfig:
    """Read the text of a KatibConfig; an empty one is the default.

    Args:
        text: YAML or JSON.
        source: What to call it in errors: a file, or a ConfigMap and its key.

    Raises:
        InvalidError: All that is wrong with it, each error with the source and the field.
    """
    documents = parse_yaml(text, source)
    if not documents:
        return KatibConfig()
    if len(documents) > 1:
        cause = f"it holds {len(documents)} documents"
        raise InvalidError([FieldError(source, cause, "keep the KatibConfig alone", "config-documents")])
    try:
        return KatibConfig.model_validate(_without_nulls(documents[0].data))
    except ValidationError as failure:
        raise InvalidError(_field_error(detail, source) for detail in failure.errors(include_url=False)) from failure


def _without_nulls(data: Any) -> Any:
    """Drop fields that are null, which in Kubernetes means absent."""
    if isinstance(data, dict):
        return {key: _without_nulls(value) for key, value in data.items() if value is not None}
    return [_without_nulls(element) for element in data] if isinstance(data, list) else data


def _field_error(detail: ErrorDetails, source: str) -> FieldError:
    location = detail["loc"]
    path = _path(location)
    kind = detail["type"]
    if kind == "rule":
        rule = detail["ctx"]
        at = f"{path}.{rule['at']}" if rule["at"] else path
        return _error(source, at, rule["cause"], rule["remedy"], rule["origin"])
    if kind == "extra_forbidden":
        return _error(
            source, path, "unknown field", did_you_mean(str(location[-1]), _siblings(location)), "config-field"
        )
    if kind in {"missing", "string_too_short"}:
        return _error(source, path, "missing", "set it", "config-missing")
    if kind == "literal_error":
        expected = detail["ctx"]["expected"].strip("'")
        return _error(source, path, f"{shown(detail['input'])} is no KatibConfig", f"write {expected}", "config-kind")
    cause, remedy = _WRONG_TYPE.get(kind.partition("_")[0], (detail["msg"].lower(), "mend the value"))
    return _error(source, path, f"{shown(detail['input'])} {cause}", remedy, "config-type")


def _error(source: str, path: str, cause: str, remedy: str, origin: str) -> FieldError:
    return FieldError(f"{source}: {path}" if path else source, cause, remedy, origin)


def _path(location: Sequence[str | int]) -> str:
    path = ""
    for part in location:
        path = f"{path}[{part}]" if isinstance(part, int) else path_to(path, part)
    return path


def _siblings(location: Sequence[str | int]) -> list[str]:
    """Return the fields that are known where an unknown one was found."""
    model: type[BaseModel] = KatibConfig
    for part in location[:-1]:
        if isinstance(part, str):
            model = _model_of(_field(model, part))
    return [field.alias or name for name, field in model.model_fields.items()]


def _field(model: type[BaseModel], alias: str) -> Any:
    return next(field.annotation for field in model.model_fields.values() if field.alias == alias)


def _model_of(annotation: Any) -> type[BaseModel]:
    """Return the model in `Model` or `tuple[Model, ...]`."""
    return next(
        part for part in (annotation, *get_args(annotation)) if isinstance(part, type) and issubclass(part, BaseModel)
    )
