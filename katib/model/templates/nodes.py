"""A template prepared for rendering: its object, with slots for values.

A prepared tree consists of dicts, lists and scalars that are the same for every trial, and of slots. `fill` copies it
with the values of one trial; the result shares nothing with the tree or with another trial.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from katib.errors import InvalidError, invalid
from katib.model.templates.placeholders import join_text, split_text
from katib.model.templates.typed_fields import FieldType, field_type
from katib.model.wording import path_to, shown
from katib.model.written import in_place, value_in_place
from katib.model.yaml_text import Plain, as_written, parse_one

TYPE_WORDS = {FieldType.INTEGER: "a whole number", FieldType.BOOLEAN: "true or false"}

_INTEGER = re.compile(r"[-+]?[0-9]{1,19}")
_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}


class Slot(Protocol):
    """A place for values."""

    def fill(self, values: Mapping[str, str]) -> Any:
        """Return the content of the slot in the object of one trial."""


@dataclass(frozen=True, slots=True)
class TextSlot:
    """Text with placeholders; stays text."""

    parts: tuple[str, ...]

    def fill(self, values: Mapping[str, str]) -> str:
        return join_text(self.parts, values)


@dataclass(frozen=True, slots=True)
class FieldSlot:
    """A placeholder that is the whole value of a number or boolean field."""

    name: str
    type: FieldType
    path: str

    def fill(self, values: Mapping[str, str]) -> int | bool | str:
        """Return the value with the type of the field.

        Raises:
            InvalidError: The value is not of that type.
        """
        text = values[self.name]
        if self.type is FieldType.BOOLEAN:
            if text in _BOOLEANS:
                return _BOOLEANS[text]
        elif _INTEGER.fullmatch(text):
            return int(text)
        if self.type is FieldType.INTEGER_OR_TEXT:
            return text
        cause = f"the value of trial parameter {self.name}, {shown(text)}, is not {TYPE_WORDS[self.type]}"
        raise invalid(self.path, cause, "give the search-space parameter values of that type", "template-value-type")


@dataclass(frozen=True, slots=True)
class PlainSlot:
    """An unquoted YAML scalar with placeholders: the value decides the type, as if written literally.

    Attributes:
        parts: As returned by `split_text`.
        is_text: Whether its field holds text.
        field: The name of its field.
    """

    parts: tuple[str, ...]
    is_text: bool = False
    field: str = ""

    def fill(self, values: Mapping[str, str]) -> Any:
        """Return the YAML value of the text; a value that is not YAML on its own stays text."""
        text = join_text(self.parts, values)
        is_bare = len(self.parts) == 3 and not self.parts[0] and not self.parts[2]  # noqa: PLR2004  # text, name, text
        if is_bare and text[:1] in tuple("[{\"'"):
            try:
                return in_place(parse_one(text, "value", as_written), is_text=self.is_text)
            except InvalidError:
                return text
        return value_in_place(Plain(text), self.is_text, self.field)


@dataclass(frozen=True, slots=True)
class EntriesSlot:
    """A mapping with placeholders in its keys."""

    entries: tuple[tuple[tuple[str, ...], Any], ...]

    def fill(self, values: Mapping[str, str]) -> dict[str, Any]:
        return {join_text(parts, values): fill(node, values) for parts, node in self.entries}


@dataclass(frozen=True, slots=True)
class ListSlot:
    """A list with elements that are left out if a value is missing, each with the names of these values."""

    elements: tuple[tuple[Any, frozenset[str]], ...]

    def fill(self, values: Mapping[str, str]) -> list[Any]:
        return [fill(node, values) for node, needed in self.elements if needed <= values.keys()]


def with_optional_elements(node: Any, names: frozenset[str]) -> Any:
    """Return a prepared tree in which the list elements with these placeholders are left out if the values are missing.

    Within nested lists, the innermost element is left out.
    """
    match node:
        case dict():
            return {key: with_optional_elements(child, names) for key, child in node.items()}
        case EntriesSlot(entries=entries):
            return EntriesSlot(tuple((parts, with_optional_elements(child, names)) for parts, child in entries))
        case list():
            elements = tuple((with_optional_elements(child, names), names & _own_names(child)) for child in node)
            return ListSlot(elements) if any(needed for _, needed in elements) else [child for child, _ in elements]
    return node


def _own_names(node: Any) -> frozenset[str]:
    """Return the placeholders of a list element, without those in elements of nested lists."""
    match node:
        case TextSlot(parts=parts) | PlainSlot(parts=parts):
            return frozenset(parts[1::2])
        case FieldSlot(name=name):
            return frozenset((name,))
        case dict():
            return frozenset[str]().union(*map(_own_names, node.values()))
        case EntriesSlot(entries=entries):
            return frozenset[str]().union(*(_own_names(child) | set(parts[1::2]) for parts, child in entries))
    return frozenset()


def fill(node: Any, values: Mapping[str, str]) -> Any:
    """Return a copy of a prepared tree with the values in its slots."""
    kind = type(node)
    if kind in _SCALARS:
        return node
    if kind is not dict and kind is not list:
        return cast("Slot", node).fill(values)
    filled = node.copy()
    for place, child in node.items() if kind is dict else enumerate(node):
        if type(child) not in _SCALARS:
            filled[place] = fill(child, values)
    return filled


_SCALARS = frozenset((str, int, float, bool, type(None)))


def prepare_object(obj: Any, path: str, keys: tuple[str, ...] = ()) -> Any:
    """Prepare an inline template.

    Raises:
        InvalidError: It contains a value that JSON cannot express.
    """
    if isinstance(obj, Mapping):
        texts = {str(key).lower() if isinstance(key, bool) else str(key): child for key, child in obj.items()}
        return _entries({key: prepare_object(child, path_to(path, key), (*keys, key)) for key, child in texts.items()})
    if isinstance(obj, list | tuple):
        return [prepare_object(child, f"{path}[{i}]", keys) for i, child in enumerate(obj)]
    if isinstance(obj, str):
        parts = split_text(obj)
        if len(parts) == 1:
            return obj
        kind = field_type(keys)
        if kind is not None and parts[::2] == ("", ""):
            return FieldSlot(parts[1], kind, path)
        return TextSlot(parts)
    if type(obj) not in _SCALARS or (isinstance(obj, float) and not math.isfinite(obj)):
        remedy = "write it in quotes, so that it is text"
        raise invalid(path, f"{shown(obj)} cannot be written as JSON", remedy, "template-not-encodable")
    return obj


def prepare_yaml(text: str) -> Any:
    """Prepare a template from YAML text, with the types that follow from the author's quoting.

    Raises:
        InvalidError: It is not one YAML document.
    """
    return _with_slots_for_keys(in_place(parse_one(text, "template", _scalar), _in_place))


def _scalar(text: str, is_text: bool) -> Any:
    parts = split_text(text)
    if len(parts) == 1:
        return as_written(text, is_text)
    return TextSlot(parts) if is_text else PlainSlot(parts)


def _in_place(scalar: Any, is_text: bool, field: str) -> Any:
    return (
        PlainSlot(scalar.parts, is_text, field)
        if isinstance(scalar, PlainSlot)
        else value_in_place(scalar, is_text, field)
    )


def _with_slots_for_keys(node: Any) -> Any:
    if isinstance(node, dict):
        return _entries({key: _with_slots_for_keys(child) for key, child in node.items()})
    return [_with_slots_for_keys(child) for child in node] if isinstance(node, list) else node


def _entries(children: dict[str, Any]) -> Any:
    parts = [split_text(key) for key in children]
    if all(len(part) == 1 for part in parts):
        return children
    return EntriesSlot(tuple(zip(parts, children.values(), strict=True)))
