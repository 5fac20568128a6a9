"""Objects as their author wrote them: an unquoted scalar is text if its place holds text.

`3.10`, `on` and `010` are valid choices, arguments and labels, and a parsed number would lose their text. The places of
our kinds follow from their types, those of jobs from the names of their fields. Everywhere else a scalar has its
meaning in YAML, and a file mode with a leading zero is octal, as in the Kubernetes tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from msgspec import inspect

from katib.model.types import Experiment, Model, Suggestion, Trial
from katib.model.types.fitting import part_type, type_of
from katib.model.yaml_text import Plain, YamlDocument, as_written, parse_one, parse_yaml, plain_value

_MODELS: Final[Mapping[str, type[Model]]] = {model.__name__: model for model in (Experiment, Suggestion, Trial)}

TEXT_FIELDS: Final = frozenset(
    {"args", "command", "image", "key", "name", "namespace", "path", "subPath", "workingDir"}
)
"""Fields of jobs that hold text, or lists of text, at any depth."""
_TEXT_MAPS: Final = frozenset({"annotations", "data", "labels", "matchLabels", "nodeSelector", "stringData"})
_MODES: Final = frozenset({"mode", "defaultMode"})
_OCTAL: Final = re.compile("0[0-7]+", re.ASCII)

Leaf = Callable[[Any, bool, str], Any]
"""Returns the value of a scalar from its original form, whether its place holds text, and the name of its field."""


def read_objects(text: str | bytes, source: str) -> list[YamlDocument]:
    """Return the documents of a text of objects; see `parse_yaml`."""
    return [replace(document, data=in_place(document.data)) for document in parse_yaml(text, source, as_written)]


def read_object(text: str | bytes, source: str) -> Any:
    """Return the one object of a text; see `parse_one`."""
    return in_place(parse_one(text, source, as_written))


def value_in_place(scalar: Any, is_text: bool, field: str) -> Any:
    if not isinstance(scalar, Plain):  # of a JSON text, true or a whole number
        return str(scalar).lower() if is_text and isinstance(scalar, bool | int) else scalar
    if field in _MODES and _OCTAL.fullmatch(scalar):
        return int(scalar, 8)
    text = str(scalar)
    meaning = plain_value(text)
    return text if is_text and meaning is not None else meaning


def in_place(data: Any, leaf: Leaf = value_in_place, *, is_text: bool = False) -> Any:
    """Return data that were read with scalars as written, each scalar with its value in its place.

    Args:
        data: An object, or a part of one.
        leaf: Makes the values of scalars.
        is_text: Whether the place of the part itself holds text.
    """
    items = data.get("items") if isinstance(data, dict) else None
    if isinstance(items, list):  # a List has objects of any kind
        data = {**data, "items": [in_place(item, leaf) for item in items]}
    model = _model_of(str(data.get("kind"))) if isinstance(data, dict) else None
    return _settled(data, None if model is None else type_of(model), leaf, "", is_text)


def _model_of(kind: str) -> type[Model] | None:
    if kind != "OptimizationJob":
        return _MODELS.get(kind)
    from katib.model.types.optimization import OptimizationJob

    return OptimizationJob


def _settled(node: Any, kind: inspect.Type | None, leaf: Leaf, field: str, is_text: bool) -> Any:
    if isinstance(node, list):
        element = part_type(kind, 0)
        return [_settled(child, element, leaf, field, is_text) for child in node]
    if not isinstance(node, dict):
        return leaf(node, is_text if kind is None else isinstance(kind, inspect.StrType), field)
    has_name, in_map = not node.keys().isdisjoint(("name", "key")), field in _TEXT_MAPS
    return {
        name: _settled(
            child,
            part_type(kind, name),
            leaf,
            name,
            in_map or name in TEXT_FIELDS or (has_name and name in ("value", "values")),
        )
        for name, child in node.items()
    }
