"""Configuration files of a program as templates: a value takes the place of that of the key of its parameter's name."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Container, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Final, NamedTuple

import yaml

from katib.errors import InvalidError, invalid, one_line

_YAML: Final = frozenset({".yaml", ".yml"})
_TREES: Final = _YAML | {".json"}
_MOST_CHARACTERS: Final = 200_000
"""An object of Kubernetes has room for 256 KiB of annotations, and a trial has the file in one."""

_KEY: Final = r"(?m)^[ \t]*(?:export[ \t]+)?(?:[\w.]*\.)?"
_VALUE: Final = r"""[ \t]*[:=][ \t]*(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s#;,]+)"""


class _Place(NamedTuple):
    """Where a value stands in a text, without its quotes.

    Attributes:
        path: Its key, with those above it, or the number of its line.
        is_plain: Whether it has no quotes, and no tag that says what it is.
    """

    path: str
    start: int
    end: int
    is_plain: bool = False


def read_config(path: str) -> str:
    """Return the text of a configuration file.

    Raises:
        InvalidError: It cannot be read, or is too large.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        raise invalid(path, cause, "write the path of a file behind {config:", "config-file") from error
    except UnicodeDecodeError as error:
        raise invalid(path, f"byte {error.start} is not UTF-8", "save it as UTF-8 text", "config-file") from error
    if len(text) > _MOST_CHARACTERS:
        cause, remedy = f"has more than {_MOST_CHARACTERS:,} characters", "pass the values by options or {parameters}"
        raise invalid(path, cause, remedy, "config-file")
    return text


def values_of_config(path: str) -> dict[str, str]:
    """Return the values without quotes of a YAML or JSON file by key, with keys above it; none of what is neither."""
    if PurePath(path).suffix.lower() not in _TREES:
        return {}
    try:
        text = read_config(path)
        return {key.path: text[key.start : key.end] for key in _scalars(text, path) if key.is_plain}
    except InvalidError:
        return {}


def filled_config(
    text: str, source: str, placeholders: Mapping[str, str], doubles: Container[str], used: set[str]
) -> str:
    """Return a configuration file in which placeholders stand for values.

    The placeholder of a parameter takes the place of `{name}` wherever it stands; where it stands nowhere, of the
    value of the key of that name: in YAML and JSON at any depth, with keys above it as in `optimizer.lr` where there
    are several; in other files of the one line `name = value`. The rest, comments included, stays as it is.

    Args:
        text: Of the file.
        source: Its name; the ending says what it is.
        placeholders: By parameter.
        doubles: The parameters that are real numbers. YAML gets a tag for them: it takes `1e-05` for a text.
        used: Gets the parameters that the file has.

    Raises:
        InvalidError: It is no YAML, or a parameter could be meant by several of its keys.
    """
    literal = re.compile(rf"(?<![${{])\{{({'|'.join(map(re.escape, placeholders))})\}}(?!\}})")
    changes = [(_literal(text, match), match[1]) for match in literal.finditer(text)] if placeholders else []
    suffix = PurePath(source).suffix.lower()
    missing = placeholders.keys() - {name for _, name in changes}
    keys = list(_scalars(text, source)) if suffix in _TREES and missing else []
    for name in missing:
        found = [key for key in keys if key.path == name] or [key for key in keys if key.path.endswith(f".{name}")]
        remedy = "name the parameter by its path, or "
        if suffix not in _TREES:
            found, remedy = list(_lines(text, name)), ""
        if len(found) > 1:
            paths = ", ".join(place.path for place in found[:3])
            raise invalid(source, f"{name} stands at {paths}", f"{remedy}write {{{name}}} in its place", "config-file")
        changes += [(place, name) for place in found]
    for place, name in sorted(changes, reverse=True, key=lambda change: change[0].start):
        used.add(name)
        tag = "!!float " if place.is_plain and suffix in _YAML and name in doubles else ""
        text = text[: place.start] + tag + placeholders[name] + text[place.end :]
    return text


def _literal(text: str, found: re.Match[str]) -> _Place:
    """Return where a name in braces stands; as a value of its own it has blanks or brackets around it."""
    before, after = text[: found.start()], text[found.end() : found.end() + 1]
    begins = before.endswith("[") or (before.rstrip(" ")[-1:] in (":", "-", ",", "[") and before.endswith(" "))
    return _Place("", *found.span(), begins and after in ("", "\n", " ", ",", "]", "}"))


def _scalars(text: str, source: str) -> Iterator[_Place]:
    """Yield the values of a YAML or JSON text that are neither lists nor maps."""
    try:
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError) as error:
        remedy = "correct it, or give the file another ending, so that its lines name = value count"
        raise invalid(source, one_line(error), remedy, "config-file") from error
    pending = deque(("", document) for document in documents)
    seen = set()  # an alias is the node of its anchor again
    while pending:
        path, node = pending.popleft()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            pending += [(f"{path}.{key.value}" if path else str(key.value), value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            pending += [(f"{path}.{place}", value) for place, value in enumerate(node.value)]
        elif isinstance(node, yaml.ScalarNode) and node.style not in ("|", ">"):
            quote = int(node.style is not None)
            end = node.end_mark.index - quote
            length = node.end_mark.index - node.start_mark.index - 2 * quote
            # an anchor or a tag stands before a value and stays there
            start = end - len(node.value) if text[:end].endswith(node.value) else end - length
            yield _Place(path, start, end, not quote and "!" not in text[node.start_mark.index : start])


def _lines(text: str, name: str) -> Iterator[_Place]:
    for match in re.finditer(_KEY + re.escape(name) + _VALUE, text):
        quote = int(match["value"][0] in "\"'")
        number = text.count("\n", 0, match.start()) + 1
        yield _Place(f"line {number}", match.start("value") + quote, match.end("value") - quote)
