"""YAML and JSON text to plain data, strictly and within bounds. All text of users is parsed here, by the same rules.

A plain scalar has its meaning in the core schema of YAML 1.2: `1e-05` is a number, `010` is ten, `yes`, `off`, `1_000`
and `12:30` are text. One exception: infinities and NaN, which JSON does not have, stay text. A place that holds text
gets a scalar as it was written (`katib.model.written`). PyYAML's own constructor is not used: it drops repeated keys,
creates objects that JSON does not have, expands aliases without limit and overruns the stack on deep nesting. Here the
parser's events are read one by one.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml

from katib.errors import InvalidError, invalid, one_line
from katib.model.json_values import MAX_DEPTH, MAX_NODES
from katib.model.wording import shown

MAX_BYTES = 4 * 2**20
"""Maximum size of a text, from a file or a request. Kubernetes rejects objects of half that size."""

_NOT_TEXT = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INT = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+|[-+]?[0-9]{1,4000}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_UNFILLED = re.compile(r"\{\{[^{}]*\}\}")
_ODD_INDENT = re.compile("^[ \t]*([\u00a0\u1680\u2000-\u200d\u202f\u205f\u2060\u3000\ufeff])", re.MULTILINE)
"""A character that looks like a space, or is invisible, in an indentation, which must consist of spaces."""
_TAG = "tag:yaml.org,2002:"
_REMEDIES = (
    ("\\t", "indent with spaces"),
    ("tab character", "indent with spaces"),
    ("a key is not text", "put the key in quotes"),
    ("mapping values are not allowed", "put the value in quotes or fix the indentation"),
    ("cannot start any token", "put the value in quotes"),
    ("unexpected end of stream", "close the quotes"),
    ("expected ',' or", "close the bracket or add the comma"),
    ("did not find expected", "fix the indentation of this line or of the one above"),
    ("could not find expected ':'", "add the colon after the key, or fix the indentation"),
    ("escape", "use single quotes, in which a backslash is a backslash"),
)


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """One document of a text: the line it starts at, counted from one, and its plain data."""

    line: int
    data: Any


Scalar = Callable[[str, bool], Any]
"""Returns the value of a scalar, given its text and whether quotes, a tag or a block style make it a string."""


class Plain(str):
    """An unquoted scalar as it was written; its meaning depends on its place."""

    __slots__ = ()


def as_written(text: str, is_text: bool) -> str:
    """Keep a scalar as written."""
    return text if is_text else Plain(text)


def parse_yaml(text: str | bytes, source: str, scalar: Scalar | None = None) -> list[YamlDocument]:
    """Return the documents of a text, without empty ones.

    Args:
        text: YAML or JSON; bytes are UTF-8.
        source: Name of the file, shown in errors.
        scalar: Converts scalars that are not keys; by default to their meaning.

    Raises:
        InvalidError: It is not YAML, repeats a key or exceeds a bound; one error with file, line and column.
    """
    decoded = _decode(text, source)
    if scalar in (None, as_written) and decoded.lstrip()[:1] == "{":
        fast = _parse_json(decoded, Plain if scalar else float)
        if fast is not None:
            return [fast]
    loader = yaml.CSafeLoader(decoded)
    try:
        reader = _Reader(loader, source, scalar or _meaning)
        return [document for document in reader.documents() if not _is_nothing(document.data)]
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, source, decoded) from error
    except yaml.YAMLError as error:
        raise invalid(source, one_line(error), "write YAML", "file-syntax") from error
    finally:
        loader.dispose()


def parse_one(text: str | bytes, source: str, scalar: Scalar | None = None) -> Any:
    """Return the data of a text that holds one document, None if it is empty; see `parse_yaml`."""
    documents = parse_yaml(text, source, scalar)
    if len(documents) > 1:
        cause = f"it holds {len(documents)} documents"
        raise invalid(source, cause, "keep one of them", "document-count")
    return documents[0].data if documents else None


def _is_nothing(data: Any) -> bool:
    return data is None or (isinstance(data, Plain) and plain_value(data) is None)


def plain_value(text: str) -> Any:
    """Return the meaning of an unquoted scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text, 0 if text[1:2] in ("o", "x") else 10)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


def _meaning(text: str, is_text: bool) -> Any:
    return text if is_text else plain_value(text)


def _decode(text: str | bytes, source: str) -> str:
    if len(text) > MAX_BYTES:
        raise invalid(
            source, f"it has {len(text)} bytes, the limit is {MAX_BYTES}", "give an experiment file", "file-size"
        )
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise invalid(
                source, f"byte {error.start} is not UTF-8", "give a YAML or JSON file in UTF-8", "file-not-text"
            ) from error
    text = text.removeprefix("\ufeff")
    if (junk := _NOT_TEXT.search(text)) is not None:
        place = f"{source}:{text.count(chr(10), 0, junk.start()) + 1}"
        code = f"U+{ord(junk.group()):04X}"
        raise invalid(place, f"it holds the control character {code}", "give a YAML or JSON text file", "file-not-text")
    return text


def _parse_json(text: str, fraction: Callable[[str], Any]) -> YamlDocument | None:
    """Return the document if the text is valid JSON; errors in anything else are reported by the YAML reader."""
    try:
        data = json.loads(text, object_pairs_hook=_unique_pairs, parse_constant=_no_constant, parse_float=fraction)
    except (ValueError, RecursionError):
        return None
    return YamlDocument(1, data)


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("repeated key")
    return data


def _no_constant(name: str) -> None:
    raise ValueError(name)


@dataclass(slots=True)
class _Reader:
    """Builds plain data from parser events. Recursion is as deep as the data, so at most `MAX_DEPTH`."""

    loader: Any
    source: str
    make: Scalar
    nodes: int = 0
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)

    def documents(self) -> Iterable[YamlDocument]:
        self.loader.get_event()  # start of the stream
        while self.loader.check_event(yaml.DocumentStartEvent):
            self.loader.get_event()
            self.anchors.clear()
            event = self.loader.get_event()
            line = event.start_mark.line + 1
            yield YamlDocument(line, self.value(event, 1))
            self.loader.get_event()  # end of the document

    def value(self, event: Any, depth: int) -> Any:
        before = self.nodes
        self.count(1, event)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        if depth > MAX_DEPTH:
            raise self.error(event, f"it is nested deeper than {MAX_DEPTH} levels", "flatten it", "file-nesting")
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = self.scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self.sequence(event, depth)
        else:
            value = self.mapping(event, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = (value, self.nodes - before)
        return value

    def count(self, nodes: int, event: Any) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise self.error(event, f"it holds more than {MAX_NODES} values", "use fewer aliases", "file-nesting")

    def alias(self, event: Any) -> Any:
        if event.anchor not in self.anchors:
            name = shown(f"*{event.anchor}")[1:-1]
            raise self.error(event, f"{name} refers to nothing above", "put the value in quotes", "file-syntax")
        value, nodes = self.anchors[event.anchor]
        self.count(nodes, event)
        return value

    def sequence(self, start: Any, depth: int) -> list[Any]:
        self.collection_tag(start, "seq")
        elements: list[Any] = []
        while not isinstance(event := self.loader.get_event(), yaml.SequenceEndEvent):
            elements.append(self.value(event, depth + 1))
        return elements

    def mapping(self, start: Any, depth: int) -> dict[str, Any]:
        self.collection_tag(start, "map")
        fields: dict[str, Any] = {}
        merged: list[dict[str, Any]] | None = None
        while not isinstance(event := self.loader.get_event(), yaml.MappingEndEvent):
            key = self.key(event)
            is_merge = key == "<<" and event.implicit[0]
            if key in fields or (is_merge and merged is not None):
                raise self.error(event, f"key {shown(key)} appears twice", "keep one of them", "key-duplicate")
            value = self.value(self.loader.get_event(), depth + 1)
            if is_merge:
                merged = self.merge_sources(value, event)
            else:
                fields[key] = value
        for source in merged or ():
            for key, value in source.items():
                fields.setdefault(key, value)
        return fields

    def key(self, event: Any) -> str:
        self.count(1, event)
        if not hasattr(event, "value"):
            raise yaml.MarkedYAMLError(problem="a key is not text", problem_mark=event.start_mark)
        if event.implicit[0] and _ODD_INDENT.match(event.value):
            raise yaml.MarkedYAMLError(problem="an unseen character", problem_mark=event.start_mark)
        return str(event.value)

    def merge_sources(self, value: Any, event: Any) -> list[dict[str, Any]]:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise self.error(event, "<< does not name a mapping", "write <<: *anchor of a mapping", "file-syntax")
        self.count(sum(map(len, sources)), event)
        return sources

    def collection_tag(self, event: Any, kind: str) -> None:
        if event.tag not in {None, "!", _TAG + kind}:
            raise self.tag_error(event)

    def scalar(self, event: Any) -> Any:
        if event.tag is None:
            return self.make(event.value, not event.implicit[0])
        if event.tag in {"!", _TAG + "str"}:
            return self.make(event.value, True)
        if event.tag.removeprefix(_TAG) not in {"int", "float", "bool", "null"}:
            raise self.tag_error(event)
        return self.make(event.value, False)

    def tag_error(self, event: Any) -> InvalidError:
        tag = shown(event.tag)
        return self.error(event, f"the tag {tag} has no meaning here", "remove the tag", "file-syntax")

    def error(self, event: Any, cause: str, remedy: str, origin: str) -> InvalidError:
        mark = event.start_mark
        return invalid(f"{self.source}:{mark.line + 1}:{mark.column + 1}", cause, remedy, origin)


def _syntax_error(error: yaml.MarkedYAMLError, source: str, text: str) -> InvalidError:
    mark = error.problem_mark or error.context_mark
    place = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
    problem = " ".join(str(error.problem or error.context or "not YAML").split())
    if "cannot start any token" in problem and mark and text.splitlines()[mark.line][mark.column :].startswith("\t"):
        problem = "a tab character indents this line"
    remedy = next((remedy for words, remedy in _REMEDIES if words in problem), "fix the YAML syntax here")
    if mark and (unfilled := _UNFILLED.search("".join(text.splitlines()[mark.line : mark.line + 1]))):
        problem, remedy = f"{shown(unfilled[0])} was not filled in", "write a value in its place"
    elif odd := _ODD_INDENT.search(text):
        code = ord(odd[1])
        place = f"{source}:{text.count(chr(10), 0, odd.start(1)) + 1}"
        problem = f"{unicodedata.name(odd[1], 'a character').lower()} (U+{code:04X}) indents this line"
        remedy = "indent with spaces; it may come from a web page"
    return invalid(place, problem, remedy, "file-syntax")


class _Dumper(yaml.CSafeDumper):
    """Writes texts of several lines as blocks, for readability."""


def _write_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    is_number = plain_value(text) != text  # `1e-3` is one here, and text for PyYAML
    return dumper.represent_scalar(f"{_TAG}str", text, style="|" if "\n" in text else "'" if is_number else None)


_Dumper.add_representer(str, _write_text)


def dump_yaml(data: Any) -> str:
    """Return plain data as YAML, keys in their order."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text
