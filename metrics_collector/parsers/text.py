"""TEXT: metrics in log lines, found by RE2 patterns of two groups, name and value.

The default pattern reads `name=value`. It takes what Katib's default takes, and `nan` and `inf` as well, where Katib
reads an empty value: a diverged run says `loss=nan`, and that is a reading. An empty value is none. A metric whose name
the default pattern cannot spell (`val/acc`, `mAP@0.5`), which Katib never finds, is looked for by its name.

A number is taken whole or not at all, whatever the pattern says: of `1,234.5`, `1_000`, `0x10` and `1e-05` Katib takes
a part, when the pattern ends there. A unit after a number (`12s`, `93%`) is not part of it. Text is taken where a
pattern has no groups but name and value, as that of a genotype; of a pattern with more the value group may be another
than was meant. What is not taken is noted with its line.

A line may say at which step of the training its readings are, by `katib-step=4` among its words. `katib.report` writes
that; `step=4` is left alone, because programs count all kinds of things that restart in each epoch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import re2

from katib.api.metrics import (
    MAX_TIMESTAMP_LENGTH,
    STEP_MARK,
    ZERO_TIME,
    MetricLog,
    compile_format,
    parse_time,
    parse_value,
)
from katib.errors import FieldError, InvalidError, invalid
from metrics_collector.parsers.lines import MAX_LINE_BYTES, Line, Parser

_VALUE = r"\s*=\s*([+-]?(?:(?i:nan|inf(?:inity)?)\b|\d*(?:\.\d+)?(?:[Ee][+-]?\d+)?))"
DEFAULT_FILTER = r"([\w|-]+)" + _VALUE

# The same pattern for the standard library's engine, which costs a fifth of RE2's binding on a short line. It is given
# short ones only: where RE2 is linear, this one looks at a long word from each of its characters.
_SHORT_LINE = 256
_DEFAULT = re.compile(DEFAULT_FILTER.replace(r"\s", r"[\t\n\f\r ]").encode())

_STEP_MARK = STEP_MARK.encode() + b"="
_STEP = re.compile(rb"(?:^|\s)" + re.escape(_STEP_MARK) + rb"(\d{1,18})(?=\s|$)")

# What belongs to a number beyond the value that a pattern found: behind it, and before it. A comma is looked at apart.
_GOES_ON = re.compile(rb"[A-Za-z]*[0-9_]|[eEdD][+-]?[0-9]|[.':][0-9]|(?:\xc2\xa0|\xe2\x80[\x89\xaf])[0-9]")
_BEGAN = re.compile(rb"(?:[0-9][_.']?|[0-9.][eEdD][+-]?|0[xXbBoO]|(?:^|[^\w.)\]+-])[.-])$", re.ASCII)
_EXPONENT = re.compile(rb"[0-9.][eEdD]$")
_OTHER_BASE = re.compile(rb"[xXbBoO][0-9A-Fa-f]")
_MAY_HAVE_GROUPS = re.compile(rb"[+-]?(?:[0-9]+|[1-9][0-9]{0,2}(?:\.[0-9]{3})+)")
"""A comma and a digit behind such a number go on with it: 1,234 or, in half of the world, 1.234,5 and 3,14."""

_COLOUR_BEGINS: Final = b"\x1b["
_COLOUR: Final = re.compile(rb"\x1b\[[0-9;]*m")
"""What a terminal shows as a colour; a filter of the user that reads such codes itself gets them."""

_NAME_AND_VALUE = 2
MAX_VALUE_LENGTH = 1024
"""Longer text is no value: the filter swallowed a line."""


class TextParser(Parser):
    """Reads lines of text.

    Args:
        names: The metrics to find.
        filters: RE2 patterns in order of preference; none: the default pattern.
        limit: Longest part of a line that is examined, in bytes.
        file_format: As given by the user, to be refused when it is not TEXT.

    Raises:
        InvalidError: A filter is not an RE2 pattern with two groups, or the format is unknown.
    """

    def __init__(
        self,
        names: Iterable[str],
        filters: Sequence[str] = (),
        *,
        limit: int = MAX_LINE_BYTES,
        file_format: str = "TEXT",
    ) -> None:
        if file_format not in {"", "TEXT"}:
            path, cause = "source.fileSystemPath.format", f"unknown format {file_format!r}"
            raise invalid(path, cause, "use TEXT or JSON", "file-format")
        self._names = {name.encode(): name for name in names}
        self._takes_text = bool(filters)
        self._reads_colours = any("1b" in text.lower() or "033" in text for text in filters)
        self._is_default, self._filters = _filters(tuple(filters), tuple(self._names.values()))
        super().__init__(self._names, limit)

    def _read(self, line: Line) -> Iterator[MetricLog]:
        if _COLOUR_BEGINS in line.text and not self._reads_colours:
            line = line._replace(text=_COLOUR.sub(b"", line.text))
        time: datetime | None = None
        step = _step_of(line.text) if _STEP_MARK in line.text else None
        for text, match in self._matches(line):
            name = self._names.get((match.group(1) or b"").strip())
            raw = match.group(2)
            if name is None or not raw or not raw.strip():
                continue
            value = clean_value(raw)
            start, end = match.span(2)
            if parse_value(value) is None:
                is_taken = self._takes_text and value[:1].isalpha() and match.re.groups == _NAME_AND_VALUE
            else:
                is_taken = not _is_part(text, start + len(raw) - len(raw.lstrip()), end)
            if not is_taken:
                self.notes.refuse(name, text, match.start())
                continue
            if time is None:
                word, blank, _ = line.text[: MAX_TIMESTAMP_LENGTH + 1].partition(b" ")
                time = parse_time(word.decode(errors="replace")) if blank and word[:1].isdigit() else None
                time = time or ZERO_TIME
            yield MetricLog(time, name, value, step)

    def _matches(self, line: Line) -> Iterator[tuple[bytes, Any]]:
        """Yield what the filters find, each match with the text that it is in."""
        if self._is_default and len(line.text) <= _SHORT_LINE and not line.cut:
            for match in _DEFAULT.finditer(line.text):
                yield line.text, match
            return
        text = line.text if line.text.isascii() else line.text.decode(errors="replace").encode()
        for pattern in self._filters:
            for match in pattern.finditer(text):
                # A match that reaches the end of a cut line may have lost digits.
                if not (line.cut and match.end() == len(text)):
                    yield text, match


def _is_part(text: bytes, start: int, end: int) -> bool:
    """Return whether the number in text[start:end] is only a part of the one that stands there."""
    value, before, after = text[start:end], text[max(0, start - 3) : start], text[end : end + 16]
    if _GOES_ON.match(after) or (value.lstrip(b"+-") == b"0" and _OTHER_BASE.match(after)):
        return True
    if after[:1] == b"," and after[1:2].isdigit() and not before.endswith(b",") and _MAY_HAVE_GROUPS.fullmatch(value):
        return True
    return (_EXPONENT if value[:1] in b"+-" else _BEGAN).search(before) is not None


def clean_value(raw: bytes) -> str:
    """Return a value as it is kept; empty when it is none."""
    text = raw[: 4 * MAX_VALUE_LENGTH + 1].decode(errors="replace").strip()
    return text.replace("\0", "\ufffd") if len(text) <= MAX_VALUE_LENGTH else ""  # PostgreSQL keeps no NUL in text


def _step_of(line: bytes) -> int | None:
    match = _STEP.search(line)
    return None if match is None else int(match[1])


@lru_cache(maxsize=64)
def _filters(given: tuple[str, ...], names: tuple[str, ...]) -> tuple[bool, Sequence[Any]]:
    """Return whether the default filter is all, and the compiled filters; trials of one experiment share them."""
    patterns = given or _default_filters(names)
    compiled: list[Any] = []
    errors: list[FieldError] = []
    for index, text in enumerate(patterns):
        try:
            compiled.append(compile_format(text, f"source.filter.metricsFormat[{index}]"))
        except InvalidError as error:
            errors += error.errors
    if errors:
        raise InvalidError(errors)
    return patterns == (DEFAULT_FILTER,), compiled


def _default_filters(names: Iterable[str]) -> tuple[str, ...]:
    others = [name for name in names if not re.fullmatch(r"[\w|-]+", name, re.ASCII)]
    if not others:
        return (DEFAULT_FILTER,)
    alternatives = "|".join(re2.escape(name) for name in sorted(others, key=len, reverse=True))
    return DEFAULT_FILTER, rf"(?:^|[^\pL\w|/.-])({alternatives}){_VALUE}"
