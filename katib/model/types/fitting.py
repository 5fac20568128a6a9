"""Conversion of plain data to a type, in one walk along both.

Needed only for data that does not fit its type at once: a bare number in place of text, a field that a newer version
wrote, and values of the wrong type, which a user wants to see all at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from msgspec import Struct, inspect

ANY_SCALAR = "any-scalar"
"""Metadata key of a text that may be written as a number: `number`, or `whole` for whole ones, which have one text."""
FURTHER = "+further"
"""Key of the unknown fields of an open type."""

_CLASSES: dict[type[inspect.Type], tuple[Any, str]] = {
    inspect.StructType: (Mapping, "mapping"),
    inspect.DictType: (Mapping, "mapping"),
    inspect.VarTupleType: ((list, tuple), "list"),
    inspect.StrType: (str, "text"),
    inspect.BoolType: (bool, "bool"),
    inspect.FloatType: ((int, float), "float"),
    inspect.IntType: (int, "int"),
    inspect.DateTimeType: (str, "time"),
}
_LARGEST = sys.float_info.max
_STAND_INS: dict[str, Any] = {"mapping": {}, "float": 0.0, "int": 0, "text": "", "bool": False, "list": []}


@dataclass(frozen=True, slots=True)
class Misfit:
    """A value of the wrong type.

    Attributes:
        location: Names of fields and indices that lead to it.
        wanted: `bool`, `float`, `int`, `int32` (a whole number that is too large), `list`, `mapping`, `text` or `time`.
        value: The value.
    """

    location: tuple[str | int, ...]
    wanted: str
    value: Any


def fitted(value: Any, model: type[Struct], misfits: list[Misfit] | None = None) -> Any:
    """Return a value as far as it fits a type.

    Args:
        value: As it was written, without nulls.
        model: The type.
        misfits: Collects values of the wrong type, which are left out, or replaced in a list, so that indices stay
            true. If None, they stay unchanged.
    """
    return _fitted(value, type_of(model), (), misfits)


def spread(value: Any) -> Any:
    """Return an encoded value with the unknown fields of its types beside the known ones."""
    if isinstance(value, list):
        return [spread(element) for element in value]
    if not isinstance(value, dict):
        return value
    further = value.get(FURTHER, {})
    return {name: spread(field) for name, field in value.items() if name != FURTHER} | further


def model_in(kind: inspect.Type) -> tuple[type[Struct], bool] | None:
    """Return the type of the objects in a field, and whether the field is a list of them; None for plain values."""
    kind, _ = _plain(kind)
    if isinstance(kind, inspect.StructType):
        return kind.cls, False
    if isinstance(kind, inspect.VarTupleType) and (found := model_in(kind.item_type)):
        return found[0], True
    return None


def part_type(kind: inspect.Type | None, part: str | int) -> inspect.Type | None:
    """Return the type of a field, or of the elements of a list; None if it is any or unknown."""
    found: inspect.Type | None = None
    if isinstance(kind, inspect.StructType):
        found = next((field.type for field in kind.fields if field.encode_name == part), None)
    elif isinstance(kind, inspect.DictType):
        found = kind.value_type
    elif isinstance(kind, inspect.VarTupleType):
        found = kind.item_type
    found = found and _plain(found)[0]
    return None if isinstance(found, inspect.AnyType) else found


def fields_of(model: type[Struct]) -> Iterator[inspect.Field]:
    """Yield the fields of a type that have a name of their own in JSON."""
    return (field for field in type_of(model).fields if field.encode_name != FURTHER)


@cache
def type_of(model: type[Struct]) -> inspect.StructType:
    """Return the type information of a struct."""
    found = inspect.type_info(model)
    assert isinstance(found, inspect.StructType)
    return found


def _plain(kind: inspect.Type) -> tuple[inspect.Type, str]:
    """Return a type without null and metadata, and the other scalars that it accepts as text."""
    scalars = ""
    while isinstance(kind, inspect.UnionType | inspect.Metadata):
        if isinstance(kind, inspect.Metadata):
            scalars = (kind.extra or {}).get(ANY_SCALAR, "")
            kind = kind.type
        else:
            kind = next(one for one in kind.types if not isinstance(one, inspect.NoneType))
    return kind, scalars


def _fitted(value: Any, kind: inspect.Type, location: tuple[str | int, ...], misfits: list[Misfit] | None) -> Any:
    if value is None and isinstance(kind, inspect.UnionType):
        return None
    kind, scalars = _plain(kind)
    value = _as_text(value, "all" if scalars and misfits is None else scalars)
    if wanted := _missed(value, kind):
        if misfits is None:
            return value
        misfits.append(Misfit(location, wanted, value))
        return _STAND_INS.get(wanted) if location and isinstance(location[-1], int) else None
    if isinstance(kind, inspect.StructType):
        value = _fitted_object(value, kind, location, misfits)
    elif isinstance(kind, inspect.VarTupleType):
        value = [_fitted(element, kind.item_type, (*location, i), misfits) for i, element in enumerate(value)]
    elif isinstance(kind, inspect.DictType):
        pairs = ((name, _fitted(field, kind.value_type, (*location, name), misfits)) for name, field in value.items())
        is_any = isinstance(kind.value_type, inspect.AnyType)
        value = {name: field for name, field in pairs if field is not None or is_any}
    return value


def _fitted_object(
    value: Mapping[str, Any], kind: inspect.StructType, location: tuple[str | int, ...], misfits: list[Misfit] | None
) -> dict[str, Any]:
    known = {field.encode_name: field for field in kind.fields}
    found: dict[str, Any] = {}
    for name, field in known.items():
        if name in value and (fits := _fitted(value[name], field.type, (*location, name), misfits)) is not None:
            found[name] = fits
    further = {name: field for name, field in value.items() if name not in known}
    return {**found, FURTHER: further} if further and FURTHER in known else found


def _as_text(value: Any, scalars: str) -> Any:
    """Return a scalar as text if its text is known or does not matter. A stored object was accepted before."""
    if isinstance(value, bool):
        return str(value).lower() if scalars == "all" else value
    takes = int if scalars == "whole" else int | float
    return str(value) if scalars and isinstance(value, takes) else value


def _missed(value: Any, kind: inspect.Type) -> str:
    """Return the expected type of a value of the wrong type; empty if it fits."""
    classes, wanted = _CLASSES.get(type(kind), (object, ""))
    if not isinstance(value, classes) or (isinstance(value, bool) and wanted in {"int", "float"}):
        return wanted
    if wanted == "float" and isinstance(value, int) and abs(value) > _LARGEST:
        return wanted
    if isinstance(kind, inspect.DateTimeType) and not _is_time(value):
        return wanted
    if isinstance(kind, inspect.IntType) and kind.ge is not None and kind.lt is not None:
        return "" if kind.ge <= value < kind.lt else "int32"
    return ""


def _is_time(text: str) -> bool:
    with suppress(ValueError):
        return datetime.fromisoformat(text).tzinfo is not None
    return False
