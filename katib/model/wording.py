"""Display of values, words and paths in errors: always one line of limited length."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence

_MAX_SHOWN = 60
_MAX_LEVELS = 3
_MIN_PART = 3
_LARGEST_EXACT = 2**53
"""Largest number up to which a float holds every whole number. `_MIN_PART`: shorter words occur in too many others."""
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

_WRONG_TYPE = {
    "bool": ("is not true or false", "write true or false without quotes"),
    "float": ("is not a number", "write a number without quotes"),
    "int": ("is not a whole number", "write a whole number without quotes"),
    "list": ("is not a list", "write a list, one element a line with a dash"),
    "mapping": ("is not a mapping", "write its fields as key: value"),
    "text": ("is not text", "put it in quotes"),
}


def shown(value: object) -> str:
    """Return the value as JSON on one line, cut if long: `"ten"`, `[1, 2]`, `true`.

    If it contains unprintable characters, all of its non-ASCII characters are escaped.
    """
    outline = _outline(value)
    text = json.dumps(outline, default=str, ensure_ascii=False)
    if not text.isprintable():
        text = json.dumps(outline, default=str)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def _outline(value: object, depth: int = 0) -> object:
    """Return the first levels and elements, so that showing a huge value does not cost its size."""
    if isinstance(value, dict | list | tuple) and depth == _MAX_LEVELS:
        return "..."
    if isinstance(value, dict):
        return {str(key)[:_MAX_SHOWN]: _outline(value[key], depth + 1) for key in list(value)[:10]}
    if isinstance(value, list | tuple):
        return [_outline(element, depth + 1) for element in value[:10]]
    if isinstance(value, str):
        return value[: 4 * _MAX_SHOWN]
    if isinstance(value, int) and abs(value) > 10**_MAX_SHOWN:
        return "a huge number"
    return value


def number_text(value: float, digits: int = 6) -> str:
    """Return a number as text: whole numbers in full, others with `digits` significant digits, or their whole part."""
    size = abs(value)
    is_whole = size <= _LARGEST_EXACT and (value == round(value) or size >= 10**digits)
    return str(round(value)) if is_whole else f"{value:.{digits}g}"


def either(names: Sequence[str]) -> str:
    """Return names as a choice: `a`, `a or b`, `a, b or c`."""
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def counted(number: int, noun: str) -> str:
    """Return `1 trial`, `2 trials`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def path_to(parent: str, key: str) -> str:
    """Return the path of a field: `spec.goal`, or `metadata.labels["a/b"]` if a dot would mislead."""
    if not _PLAIN_KEY.fullmatch(key):
        return f"{parent}[{shown(key)}]"
    return f"{parent}.{key}" if parent else key


def path_of(location: Iterable[str | int]) -> str:
    """Return the path of a field from its parts: `spec.parameters[2].name`."""
    path = ""
    for part in location:
        path = f"{path}[{part}]" if isinstance(part, int) else path_to(path, part)
    return path


def wrong_type(value: object, wanted: str, otherwise: str = "is not of the right type") -> tuple[str, str]:
    """Return cause and remedy of a value of the wrong type.

    Args:
        wanted: A key of `_WRONG_TYPE`.
        otherwise: Cause for any other `wanted`.
    """
    cause, remedy = _WRONG_TYPE.get(wanted, (otherwise, "fix the value"))
    return f"{shown(value)} {cause}", remedy


def closest(word: str, choices: Iterable[str]) -> str:
    """Return the probably intended choice: with that prefix, similar, or containing the word; else empty."""
    by_lower = {choice.lower(): choice for choice in choices}
    word = word[:_MAX_SHOWN].lower()
    is_part = len(word) >= _MIN_PART
    near = (
        [choice for choice in by_lower if is_part and choice.startswith(word)]
        or difflib.get_close_matches(word, by_lower, n=1)
        or [choice for choice in by_lower if is_part and word in choice]
    )
    return by_lower[near[0]] if near else ""


def one_of(choices: Iterable[str]) -> str:
    """Return the remedy that lists the choices: `use one of a, b`."""
    names = list(choices)
    if not names:
        return "remove it, none is available here"
    return f"use {names[0]}" if len(names) == 1 else f"use one of {', '.join(names)}"


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return the remedy that lists all choices, after the closest one if there is one."""
    names = list(choices)
    guess = closest(word, names)
    return f"did you mean {guess}? {one_of(names)}" if guess else one_of(names)


def format_duration(seconds: float) -> str:
    """Return a duration in at most two units, as kubectl writes ages: `45s`, `3m20s`, `5h12m`, `3d4h`."""
    total = max(0, int(seconds))
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:  # noqa: PLR2004 - kubectl counts seconds up to two minutes
        return f"{total}s"
    if hours < 1:
        return _two_units(minutes, "m", total % 60, "s")
    if days < 1:
        return _two_units(hours, "h", minutes % 60, "m")
    return _two_units(days, "d", hours % 24, "h")


def _two_units(major: int, major_unit: str, minor: int, minor_unit: str) -> str:
    return f"{major}{major_unit}{minor}{minor_unit}" if minor else f"{major}{major_unit}"


def size_text(size_bytes: int) -> str:
    """Return a number of bytes in words, such as 12 kB."""
    size = float(size_bytes)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:  # noqa: PLR2004
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
