"""YAML as a ConfigMap template uses it: nodes with their quoting, and the meaning of a plain scalar.

Plain scalars mean what the Kubernetes tools make of them: `1e-05` is a number, `12:30` and `2024-01-01` are text.
"""

from __future__ import annotations

import re
from typing import Any, cast

import yaml

MAX_NODES = 100_000
"""Aliases can make a small text expand without bounds; no template is this large."""

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLEANS = {
    word: value
    for value, words in ((True, "true yes on"), (False, "false no off"))
    for lower in words.split()
    for word in (lower, lower.capitalize(), lower.upper())
}
_INTEGER = re.compile(r"[-+]?(?:0b[01]+|0o?[0-7]+|0x[0-9a-fA-F]+|0|[1-9][0-9]{0,4000})")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_OCTAL = re.compile(r"([-+]?)0([0-7]+)")

EXPLICIT = "!"
"""Style of a scalar that carries a tag, so that it is not taken for a plain one."""


class _Loader(yaml.SafeLoader):
    """Composes nodes that remember whether a scalar was plain."""

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        tagged = self.peek_event().tag is not None  # type: ignore[no-untyped-call]  # the stubs leave it open
        node = super().compose_scalar_node(anchor)
        if tagged:
            node.style = EXPLICIT
        return node


def compose(text: str) -> yaml.Node | None:
    """Return the root node of a text, merge keys resolved; None for an empty text.

    Raises:
        yaml.YAMLError: Not one YAML document, or one that refers to itself or grows beyond reason.
        RecursionError: Nested too deeply.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is not None:
            _flatten(loader, node)
        return node
    finally:
        loader.dispose()


def parse(text: str) -> Any:
    """Return what a YAML text means, as JSON values.

    Raises:
        yaml.YAMLError: As for `compose`.
        RecursionError: Nested too deeply.
    """
    node = compose(text)
    return None if node is None else _value(node)


def scalar_value(node: yaml.ScalarNode) -> Any:
    """Return the meaning of a scalar: text when it is quoted, tagged as text or in a block, else by its looks."""
    return node.value if is_text(node) else plain_value(node.value)


def is_text(node: yaml.ScalarNode) -> bool:
    """Say whether the author made this scalar a text, whatever stands in it."""
    if node.style == EXPLICIT:
        return node.tag == "tag:yaml.org,2002:str"
    return node.style is not None


def plain_value(text: str) -> Any:
    """Return what YAML makes of an unquoted scalar. Infinities and NaN stay text: JSON has no word for them."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    digits = text.replace("_", "") if text[0] != "_" else text
    if _INTEGER.fullmatch(digits):
        return int(_OCTAL.sub(r"\g<1>0o\2", digits), 0)
    if _FLOAT.fullmatch(digits):
        number = float(digits)
        return number if abs(number) != float("inf") else text
    return text


def _value(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {key.value: _value(value) for key, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    return scalar_value(cast("yaml.ScalarNode", node))


def _flatten(loader: _Loader, root: yaml.Node) -> None:
    """Apply merge keys, and refuse what cannot become JSON."""
    count = 0

    def visit(node: yaml.Node, above: tuple[int, ...]) -> None:
        nonlocal count
        count += 1
        if id(node) in above or count > MAX_NODES:
            raise yaml.composer.ComposerError(None, None, "aliases make the text endless", node.start_mark)
        if isinstance(node, yaml.MappingNode):
            loader.flatten_mapping(node)
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.constructor.ConstructorError(None, None, "a key must be a text", key.start_mark)
                visit(value, (*above, id(node)))
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                visit(item, (*above, id(node)))

    visit(root, ())
