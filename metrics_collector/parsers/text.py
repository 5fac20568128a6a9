"""TEXT: metrics in log lines, found by RE2 patterns of two groups, name and value.

The default pattern reads `name=value`. It takes what Katib's default takes, and `nan` and `inf` as well, where Katib
reads an empty value: a diverged run says `loss=nan`, and that is a reading. An empty value is none. A metric whose name
the default pattern cannot spell (`val/acc`, `mAP@0.5`), which Katib never finds, is looked for by its name.

A line may say at which step of the training its readings are, by `katib-step=4` among its words. `katib.report` writes
that; `step=4` is left alone, because programs count all kinds of things that begin anew in each epoch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import re2

from katib.api.metrics import MAX_TIMESTAMP_LENGTH, STEP_MARK, ZERO_TIME, MetricLog, compile_format, parse_time
from katib.errors import FieldError, InvalidError
from metrics_collector.parsers.lines import MAX_LINE_BYTES, CandidateLines, Line, Notes

_VALUE = r"\s*=\s*([+-]?(?:(?i:nan|inf(?:inity)?)\b|\d*(?:\.\d+)?(?:[Ee][+-]?\d+)?))"
DEFAULT_FILTER = r"([\w|-]+)" + _VALUE

# The same pattern for the standard library's engine, which costs a fifth of RE2's binding on a short line. It is given
# short ones only: where RE2 is linear, this one looks at a long word from each of its characters.
_SHORT_LINE = 256
_DEFAULT = re.compile(DEFAULT_FILTER.replace(r"\s", r"[\t\n\f\r ]").encode())

_STEP_MARK = STEP_MARK.encode() + b"="
_STEP = re.compile(rb"(?:^|\s)" + re.escape(_STEP_MARK) + rb"(\d{1,18})(?=\s|$)")

MAX_VALUE_LENGTH = 1024
"""Longer text is no value: the filter swallowed a line."""


class TextParser:
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
            raise InvalidError([_format_error(file_format)])
        self._names = {name.encode(): name for name in names}
        patterns = tuple(filters) or _default_filters(self._names.values())
        self._is_default = patterns == (DEFAULT_FILTER,)
        self._filters = _compile(patterns)
        self._lines = CandidateLines(self._names, limit)

    @property
    def notes(self) -> Notes:
        """What was seen so far."""
        return self._lines.notes

    def feed(self, data: bytes) -> list[MetricLog]:
        """Return the readings of all lines that end in this chunk."""
        return [reading for line in self._lines.feed(data) for reading in self._read(line)]

    def finish(self) -> list[MetricLog]:
        """Return the readings of a last line without line end."""
        return [reading for line in self._lines.finish() for reading in self._read(line)]

    def _read(self, line: Line) -> Iterator[MetricLog]:
        time: datetime | None = None
        step = _step_of(line.text) if _STEP_MARK in line.text else None
        for raw_name, raw_value in self._matches(line):
            name = self._names.get(raw_name.strip())
            if name is None:
                continue
            value = clean_value(raw_value)
            if value:
                time = time or _time_of(line.text)
                yield MetricLog(time, name, value, step)

    def _matches(self, line: Line) -> Iterable[tuple[bytes, bytes]]:
        if self._is_default and len(line.text) <= _SHORT_LINE and not line.cut:
            return _DEFAULT.findall(line.text)
        return self._all_matches(line)

    def _all_matches(self, line: Line) -> Iterator[tuple[bytes, bytes]]:
        text = line.text if line.text.isascii() else line.text.decode(errors="replace").encode()
        for pattern in self._filters:
            for match in pattern.finditer(text):
                # A match that reaches the end of a cut line may have lost digits.
                if not (line.cut and match.end() == len(text)):
                    name, value = match.group(1, 2)
                    yield name or b"", value or b""


def clean_value(raw: bytes) -> str:
    """Return a value as it is kept; empty when it is none."""
    text = raw[: 4 * MAX_VALUE_LENGTH + 1].decode(errors="replace").strip()
    return text.replace("\0", "\ufffd") if len(text) <= MAX_VALUE_LENGTH else ""  # PostgreSQL keeps no NUL in text


def _time_of(line: bytes) -> datetime:
    word, blank, _ = line[: MAX_TIMESTAMP_LENGTH + 1].partition(b" ")
    time = parse_time(word.decode(errors="replace")) if blank and word[:1].isdigit() else None
    return time or ZERO_TIME


def _step_of(line: bytes) -> int | None:
    match = _STEP.search(line)
    return None if match is None else int(match[1])


def _default_filters(names: Iterable[str]) -> tuple[str, ...]:
    others = [name for name in names if not re.fullmatch(r"[\w|-]+", name, re.ASCII)]
    if not others:
        return (DEFAULT_FILTER,)
    alternatives = "|".join(re2.escape(name) for name in sorted(others, key=len, reverse=True))
    return DEFAULT_FILTER, rf"(?:^|[^\pL\w|/.-])({alternatives}){_VALUE}"


def _compile(filters: tuple[str, ...]) -> list[Any]:
    compiled: list[Any] = []
    errors: list[FieldError] = []
    for index, text in enumerate(filters):
        try:
            compiled.append(compile_format(text, f"source.filter.metricsFormat[{index}]"))
        except InvalidError as error:
            errors += error.errors
    if errors:
        raise InvalidError(errors)
    return compiled


def _format_error(file_format: str) -> FieldError:
    return FieldError(
        "source.fileSystemPath.format", f"unknown format {file_format!r}", "use TEXT or JSON", "file-format"
    )
