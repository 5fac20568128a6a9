r"""JSONPath as `kubectl -o jsonpath` writes it. Pure.

    template = { text | "{" step { step } "}" | "{range" step { step } "}" template "{end}" }
    step     = "." name | ".*" | ".." [name] | "[" part { "," part } "]" | "[?(" filter ")]" | "$" | "@" | quoted text
    part     = index | [from] ":" [to] [":" stride] | "*" | quoted name, or names between dots
    filter   = path [ ("==" | "!=" | "<" | "<=" | ">" | ">=") (path | quoted text | number | "true" | "false") ]

A backslash takes the meaning from a character of a name: `.metadata.labels.katib\.kubeflow\.org/experiment`. A path
leads to any number of values, and to none where a field or an element is missing. In a filter, a text that is a number
is compared with a number as one, because metrics and assignments are texts.
Source: https://kubernetes.io/docs/reference/kubectl/jsonpath/
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from katib.errors import InvalidError, invalid

_QUOTED = r'"(?:\\.|[^"\\])*"|' + r"'(?:\\.|[^'\\])*'"
_NAME = r"(?:\\.|[^\s.,\[\]{}()$@\\\"'=!<>])+"
_PIECE = re.compile(rf"(?P<text>[^{{]+)|\{{(?P<braces>(?:{_QUOTED}|[^\"'}}])*)\}}", re.DOTALL)
_STEP = re.compile(
    rf"""(?P<skipped>\s+ | [$@])
      | (?P<deep>\.\.(?!\.)) (?P<deep_name>{_NAME})?
      | \.? (?P<name>{_NAME}) | (?P<itself>\.)
      | \[\?\( (?P<filter>(?:{_QUOTED}|[^"'])*?) \)\]
      | \[ (?P<parts>(?:{_QUOTED}|[^"'\[\]])+) \]
      | (?P<quoted>{_QUOTED})""",
    re.DOTALL | re.VERBOSE,
)
_PART = re.compile(rf"\s*((?:{_QUOTED}|[^\"',])+)(?:,|$)")
_SLICE = re.compile(r"(-?\d{1,9})?\s*:\s*(-?\d{1,9})?\s*(?::\s*(\d{1,9}))?")
_INDEX = re.compile(r"-?\d{1,9}")
_FILTER = re.compile(rf"((?:{_QUOTED}|[^\"'=!<>])+)(?:(==|!=|<=|>=|<|>)\s*(.+))?", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r"}
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_Part: TypeAlias = Callable[[Any], Iterable[Any]]
"""Takes a value and yields those that it leads to."""


@dataclass(frozen=True, slots=True)
class Path:
    """A parsed path: steps of one part, or of several whose values follow each other."""

    steps: tuple[tuple[_Part, ...], ...]

    def values(self, obj: Any) -> list[Any]:
        """Return the values that it leads to."""
        found = [obj]
        for step in self.steps:
            found = [value for part in step for before in found for value in part(before)]
        return found


@dataclass(frozen=True, slots=True)
class _Loop:
    path: Path
    body: list[str | Path | _Loop]


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template."""

    pieces: Sequence[str | Path | _Loop]

    def render(self, obj: Any) -> str:
        """Return its text, with the values of each path between blanks; lists and maps are JSON."""
        return "".join(_rendered(self.pieces, obj))


def _rendered(pieces: Sequence[str | Path | _Loop], obj: Any) -> Iterator[str]:
    for piece in pieces:
        if isinstance(piece, str):
            yield piece
        elif isinstance(piece, Path):
            yield " ".join(map(text_of, piece.values(obj)))
        else:
            for value in piece.path.values(obj):
                yield from _rendered(piece.body, value)


def text_of(value: Any) -> str:
    """Return a value as it is printed: a text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def number_of(value: Any) -> float | None:
    """Return a number, or a text that is one, as a number; None for anything else."""
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def read_path(text: str, option: str) -> Path:
    """Return a path, of which kubectl takes four forms: `x.y`, `.x.y`, `{x.y}` and `{.x.y}`.

    Args:
        text: The path.
        option: Which option has it, for errors.

    Raises:
        InvalidError: It is none.
    """
    bare = text.strip()
    if bare.startswith("{") and bare.endswith("}"):
        bare = bare[1:-1]
    if not bare:
        raise _refused(option, text, "is empty")
    return _path(bare, partial(_refused, option))


def read_template(text: str, option: str) -> Template:
    """Return a template. A text without braces is taken for a path.

    Args:
        text: The template.
        option: Which option has it, for errors.

    Raises:
        InvalidError: It is none.
    """
    if "{" not in text:
        return Template([read_path(text, option)])
    refused = partial(_refused, option)
    open_loops: list[list[str | Path | _Loop]] = [[]]
    at = 0
    while at < len(text):
        if (found := _PIECE.match(text, at)) is None:
            raise refused(text[at:], "is not closed by }")
        at = found.end()
        if (braces := found["braces"]) is None:
            open_loops[-1].append(found["text"])
        elif braces.strip() == "end":
            if len(open_loops) == 1:
                raise refused("{end}", "ends no range")
            open_loops.pop()
        elif braces.split(None, 1)[:1] == ["range"]:
            loop = _Loop(_path(braces.strip().removeprefix("range"), refused), [])
            open_loops[-1].append(loop)
            open_loops.append(loop.body)
        else:
            open_loops[-1].append(_path(braces, refused))
    if len(open_loops) > 1:
        raise refused(text, "has a range without {end}")
    return Template(open_loops[0])


_Refused: TypeAlias = Callable[[str, str], InvalidError]


def _refused(option: str, text: str, cause: str) -> InvalidError:
    remedy = r'write it as {.metadata.name} or {range .items[*]}{.metadata.name}{"\n"}{end}'
    if option != "-o jsonpath":
        remedy = "write a path such as .metadata.creationTimestamp or .status.conditions[-1].type"
    return invalid(option, f"{text!r} {cause}", remedy, "jsonpath")


def _path(text: str, refused: _Refused) -> Path:
    steps: list[tuple[_Part, ...]] = []
    at = 0
    while at < len(text):
        if (found := _STEP.match(text, at)) is None:
            raise refused(text[at:], "is not understood as JSONPath")
        at = found.end()
        name = found["deep_name"] or found["name"]
        if found["deep"]:
            steps.append((_deep,))
        if name:
            steps.append((_every if name == "*" else partial(_field, _unescaped(name)),))
        elif found["filter"] is not None:
            steps.append((_filter(found["filter"].strip(), refused),))
        elif found["parts"]:
            steps.append(tuple(_part(part.strip(), refused) for part in _PART.findall(found["parts"])))
        elif found["quoted"]:
            steps.append((partial(_literal, _unescaped(found["quoted"][1:-1])),))
    return Path(tuple(steps))


def _part(text: str, refused: _Refused) -> _Part:
    if text == "*":
        return _every
    if re.fullmatch(_QUOTED, text):
        return partial(_quoted_field, text[1:-1])
    if _INDEX.fullmatch(text):
        first = int(text)
        return partial(_elements, slice(first, first + 1 or None))
    if found := _SLICE.fullmatch(text):
        bounds = [int(bound) if bound else None for bound in found.groups()]
        return partial(_elements, slice(bounds[0], bounds[1], bounds[2] or 1))
    raise refused(f"[{text}]", "is neither an index, a slice, * nor a name in quotes")


def _filter(text: str, refused: _Refused) -> _Part:
    found = _FILTER.fullmatch(text)
    if found is None or re.search(r"&&|\|\|", text):
        raise refused(f"[?({text})]", "is not a filter such as [?(@.type=='Running')]")
    left, sign, right = found.groups()
    path, other = _path(left.strip(), refused), _operand(right, refused) if sign else None

    def chosen(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else ():
            lefts = path.values(item)
            if other is None or not lefts:
                yield from [item] if lefts else ()
            elif (rights := other.values(item)) and _holds(sign, lefts[0], rights[0]):
                yield item

    return chosen


def _operand(text: str, refused: _Refused) -> Path:
    if text in ("true", "false") or _NUMBER.fullmatch(text):
        return Path(((partial(_literal, json.loads(text) if text in ("true", "false") else float(text)),),))
    if text.startswith(("@", "$")) or re.fullmatch(_QUOTED, text):
        return _path(text, refused)
    raise refused(text, "is neither a path, a number, true, false nor a text in quotes")


def _holds(sign: str, left: Any, right: Any) -> bool:
    if isinstance(left, str) is not isinstance(right, str):
        one, other = number_of(left), number_of(right)
        left, right = (left, right) if one is None or other is None else (one, other)
    try:
        return _COMPARISONS[sign](left, right)
    except TypeError:  # they have no order
        return False


def _field(name: str, value: Any) -> Iterable[Any]:
    return (value[name],) if isinstance(value, Mapping) and name in value else ()


def _quoted_field(text: str, value: Any) -> Iterable[Any]:
    """Yield the field of a name; without one, what a name with dots leads to as a path, which it is for kubectl."""
    if found := tuple(_field(_unescaped(text), value)):
        return found
    return Path(tuple((partial(_field, _unescaped(name)),) for name in re.split(r"(?<!\\)\.", text))).values(value)


def _elements(chosen: slice, value: Any) -> Iterable[Any]:
    return value[chosen] if isinstance(value, list) else ()


def _every(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def _deep(value: Any) -> Iterator[Any]:
    """Yield a value and everything in it that has parts."""
    if isinstance(value, Mapping | list):
        yield value
        for part in _every(value):
            yield from _deep(part)


def _literal(text: Any, _value: Any) -> Iterable[Any]:
    return (text,)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPED.get(found[1], found[1]), text, flags=re.DOTALL)
