"""A template prepared for rendering: the object it stands for, with slots where values go.

A prepared tree consists of dicts, lists and scalars that are the same for every trial, and of slots. `fill` copies it
with the values of one trial; nothing of the result is shared with the tree or with another trial.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import yaml

from katib.api.wording import path_to, shown
from katib.errors import FieldError, InvalidError
from katib.templates import yaml_text
from katib.templates.placeholders import join_text, split_text
from katib.templates.typed_fields import FieldType, field_type

_TYPE_WORDS = {FieldType.INTEGER: "a whole number", FieldType.BOOLEAN: "true or false"}

_INTEGER = re.compile(r"[-+]?[0-9]{1,19}")
_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}


class Slot(Protocol):
    """A place that values go to."""

    def fill(self, values: Mapping[str, str]) -> Any:
        """Return what stands here in the object of one trial."""


@dataclass(frozen=True, slots=True)
class TextSlot:
    """Text with placeholders; stays text."""

    parts: tuple[str, ...]

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the text with the values in it."""
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
        raise InvalidError(
            [
                FieldError(
                    self.path,
                    f"the value of trial parameter {self.name}, {shown(text)}, is not {_TYPE_WORDS[self.type]}",
                    "give the search-space parameter values of that type",
                    "template-value-type",
                )
            ]
        )


@dataclass(frozen=True, slots=True)
class PlainSlot:
    """An unquoted YAML scalar with placeholders: the value decides the type, as if it stood there."""

    parts: tuple[str, ...]

    def fill(self, values: Mapping[str, str]) -> Any:
        """Return what YAML makes of the text; a value that is no YAML on its own stays text."""
        text = join_text(self.parts, values)
        is_bare = len(self.parts) == 3 and not self.parts[0] and not self.parts[2]  # noqa: PLR2004  # text, name, text
        if is_bare and text[:1] in tuple("[{\"'"):
            try:
                return yaml_text.parse(text)
            except (yaml.YAMLError, RecursionError):
                return text
        return yaml_text.plain_value(text)


@dataclass(frozen=True, slots=True)
class EntriesSlot:
    """A mapping with placeholders in its keys."""

    entries: tuple[tuple[tuple[str, ...], Any], ...]

    def fill(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Return the mapping with the values in its keys and below."""
        return {join_text(parts, values): fill(node, values) for parts, node in self.entries}


def fill(node: Any, values: Mapping[str, str]) -> Any:
    """Return a copy of a prepared tree with the values in its slots."""
    kind = type(node)
    if kind is dict:
        return {key: fill(child, values) for key, child in node.items()}
    if kind is list:
        return [fill(child, values) for child in node]
    if kind in _SCALARS:
        return node
    return cast("Slot", node).fill(values)


_SCALARS = frozenset((str, int, float, bool, type(None)))


def prepare_object(obj: Any, path: str, keys: tuple[str, ...] = ()) -> Any:
    """Prepare an inline template.

    Raises:
        InvalidError: It holds something that JSON cannot express.
    """
    if isinstance(obj, Mapping):
        texts = {_key_text(key): child for key, child in obj.items()}
        return _entries({key: prepare_object(child, path_to(path, key), (*keys, key)) for key, child in texts.items()})
    if isinstance(obj, list | tuple):
        return [prepare_object(child, f"{path}[{i}]", keys) for i, child in enumerate(obj)]
    if isinstance(obj, str):
        return _text(obj, path, keys)
    if type(obj) not in _SCALARS or (isinstance(obj, float) and not math.isfinite(obj)):
        remedy = "write it in quotes, so that it is text"
        raise InvalidError(
            [FieldError(path, f"{shown(obj)} cannot be written as JSON", remedy, "template-not-encodable")]
        )
    return obj


def prepare_yaml(node: yaml.Node) -> Any:
    """Prepare a template composed from YAML text, with the types that the author's quoting asks for."""
    if isinstance(node, yaml.MappingNode):
        return _entries({key.value: prepare_yaml(child) for key, child in node.value})
    if isinstance(node, yaml.SequenceNode):
        return [prepare_yaml(child) for child in node.value]
    scalar = cast("yaml.ScalarNode", node)
    parts = split_text(scalar.value)
    if len(parts) == 1:
        return yaml_text.scalar_value(scalar)
    return TextSlot(parts) if yaml_text.is_text(scalar) else PlainSlot(parts)


def _text(text: str, path: str, keys: tuple[str, ...]) -> Any:
    parts = split_text(text)
    if len(parts) == 1:
        return text
    kind = field_type(keys)
    if kind is not None and parts[::2] == ("", ""):
        return FieldSlot(parts[1], kind, path)
    return TextSlot(parts)


def _entries(children: dict[str, Any]) -> Any:
    parts = [split_text(key) for key in children]
    if all(len(part) == 1 for part in parts):
        return children
    return EntriesSlot(tuple(zip(parts, children.values(), strict=True)))


def _key_text(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
