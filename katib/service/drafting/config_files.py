"""Configuration files of a program as templates: the value of a key with a parameter's name is replaced."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Container, Iterator, Mapping
from pathlib import Path, PurePath
from types import MappingProxyType
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
    """Location of a value in a text, without its quotes.

    Attributes:
        path: Its key, preceded by the keys above it, or the number of its line.
        is_plain: Whether it has no quotes, and no tag that gives its type.
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
    """Return the unquoted values of a YAML or JSON file by key, with the keys above it; empty for other files."""
    if PurePath(path).suffix.lower() not in _TREES:
        return {}
    try:
        text = read_config(path)
        return {key.path: text[key.start : key.end] for key in _scalars(text, path) if key.is_plain}
    except InvalidError:
        return {}


def filled_config(
    text: str,
    source: str,
    placeholders: Mapping[str, str],
    doubles: Container[str],
    used: set[str],
    facts: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return a configuration file with placeholders in place of values.

    The placeholder of a parameter replaces every `{name}`. If there is none, it replaces the value of the key of that
    name: in YAML and JSON at any depth, with the keys above it as in `optimizer.lr` if there are several; in other
    files, on the only line `name = value`. The rest, comments included, stays unchanged.

    Args:
        text: Of the file.
        source: Its name; the extension determines the format.
        placeholders: By parameter.
        doubles: The real-valued parameters. In YAML they get a tag, because it reads `1e-05` as text.
        used: Receives the parameters found in the file.
        facts: Further placeholders, which replace `{name}` only.

    Raises:
        InvalidError: It is not YAML, or a parameter matches several of its keys.
    """
    known = {**facts, **placeholders}
    literal = re.compile(rf"(?<![${{])\{{({'|'.join(map(re.escape, known))})\}}(?!\}})")
    changes = [(_literal(text, match), match[1]) for match in literal.finditer(text)] if known else []
    suffix = PurePath(source).suffix.lower()
    changes += _values(text, source, placeholders.keys() - {name for _, name in changes})
    for place, name in sorted(changes, reverse=True, key=lambda change: change[0].start):
        used.add(name)
        tag = "!!float " if place.is_plain and suffix in _YAML and name in doubles else ""
        text = text[: place.start] + tag + known[name] + text[place.end :]
    return text


def defaults_of_config(path: str, names: Collection[str]) -> dict[str, str]:
    """Return the values of these parameters in a configuration file, as written there; empty if it is refused."""
    try:
        text = read_config(path)
        return {name: text[place.start : place.end] for place, name in _values(text, path, names)}
    except InvalidError:
        return {}


def _values(text: str, source: str, names: Collection[str]) -> Iterator[tuple[_Place, str]]:
    """Yield the place of the value of each name that is a key; raise InvalidError for several keys of a name."""
    is_tree = PurePath(source).suffix.lower() in _TREES
    keys = list(_scalars(text, source)) if is_tree and names else []
    for name in names:
        found = [key for key in keys if key.path == name] or [key for key in keys if key.path.endswith(f".{name}")]
        found = found if is_tree else list(_lines(text, name))
        if len(found) > 1:
            paths = ", ".join(place.path for place in found[:3])
            remedy = f"{'name the parameter by its path, or ' if is_tree else ''}write {{{name}}} in its place"
            raise invalid(source, f"{name} stands at {paths}", remedy, "config-file")
        yield from ((place, name) for place in found)


def _literal(text: str, found: re.Match[str]) -> _Place:
    """Return the place of a name in braces; as a value of its own it is surrounded by blanks or brackets."""
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
    seen = set()  # an alias is the same node as its anchor
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
            # an anchor or a tag precedes a value and stays
            start = end - len(node.value) if text[:end].endswith(node.value) else end - length
            yield _Place(path, start, end, not quote and "!" not in text[node.start_mark.index : start])


def _lines(text: str, name: str) -> Iterator[_Place]:
    for match in re.finditer(_KEY + re.escape(name) + _VALUE, text):
        quote = int(match["value"][0] in "\"'")
        number = text.count("\n", 0, match.start()) + 1
        yield _Place(f"line {number}", match.start("value") + quote, match.end("value") - quote)
