"""TEXT: metrics in log lines, by `name=value` and `name: value`, or by RE2 patterns of two groups, name and value.

By default a metric is found by its name, blanks and signs included. The whole printed name has to match (`names`):
`loss` is not `train loss`. As Katib finds a name by its last word, a name with other words before it counts too, if the
output has only one such name and none without other words. Its first reading is held back until the name is printed
again, or the output ends. If a second name appears (`train loss` and `val loss` for `loss`), the metric is ambiguous:
it gets no more readings, and earlier ones are revoked as in Katib, by one with the text `unavailable`.

`nan` and `inf` are readings, which Katib reads as an empty value: a diverged run prints `loss=nan`. An empty value is
not a reading.

A number is read whole or not at all, for any pattern: of `1,234.5`, `1_000`, `0x10`, `1/2` and `1e-05` Katib reads a
part, if the pattern ends there. A unit after a number (`12s`, `93%`) is not part of it, an abbreviation (`1.2k`) is.
Text is accepted if a pattern has only the groups name and value, such as that of a genotype; with more groups the value
group may be another than intended. Refused values are noted with their line.

A line may give the training step of its readings, by `katib-step=4` among its words. `katib.report` writes it; `step=4`
is ignored, because programs count all kinds of things that restart in each epoch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from typing_extensions import override

from katib.errors import FieldError, InvalidError, invalid
from katib.model.metrics import (
    MAX_TIMESTAMP_LENGTH,
    STEP_MARK,
    ZERO_TIME,
    MetricLog,
    compile_format,
    parse_time,
    parse_value,
)
from katib.model.types import UNAVAILABLE
from metrics_collector.parsers.lines import (
    MAX_LINE_BYTES,
    CandidateLine,
    LineParser,
    qualifier,
    without_control_sequences,
)

# The text after a name: a sign, the wrapping of a number by NumPy and PyTorch, and the number or a part of none.
_SIGN_AND_VALUE = (
    rb"""['"]?[^\S\r\n]*+([=:])[^\S\r\n]*+(?:(?:np\.float\d+|(?:torch\.)?tensor)\()?"""
    rb"(?:([+-]?(?:(?i:nan|inf(?:inity)?)\b|(?:\d++(?:\.\d++)?|\.\d++)(?:[Ee][+-]?\d++)?))|[+-]|[Ee][+-]?\d)"
)
_KATIBS_NAME = re.compile(r"[\w|-]+", re.ASCII)
_MOST_ALTERNATIVES = 16
"""More names are looked up among all words of a line, instead of by a pattern with all names."""

_MOST_COUNTED = 8
_DENSE_BYTES = 200
"""Lines with names rarer than one in this many bytes are found by a search that is faster than a pattern's."""

_NEWLINE = 0x0A
_STEP_MARK = STEP_MARK.encode() + b"="
_STEP = re.compile(rb"(?:^|\s)" + re.escape(_STEP_MARK) + rb"(\d{1,18})(?=\s|$)")

# Characters after and before a value that belong to its number. A comma is handled separately.
_CONTINUED = re.compile(
    rb"[A-Za-z]*[0-9_]|[eEdD][+-]?[0-9]|[eE](?![A-Za-z])|[kKMGT](?![A-Za-z])|\.+[0-9#]|[':][0-9]"
    rb"|(?:\xc2\xa0|\xe2\x80[\x89\xaf])[0-9]|\x20?(?:\xc3\x97|\xc2\xb7|\xe2\x8b\x85)\x20?[0-9]"
)
_CALCULATED = re.compile(rb"[/*^+-]\.?[0-9]")
"""A fraction, range or product; a pattern that continues after the value means a part of it."""

_THOUSANDS = re.compile(rb"[+-]?[0-9]{1,3}\x20[0-9]{3}(?![0-9A-Za-z_=:%])")
_BEGAN = re.compile(rb"(?:[0-9][_.']?|[0-9.][eEdD][+-]?|0[xXbBoO]|(?:^|[^\w.)\]+-])[.-])$", re.ASCII)
_EXPONENT = re.compile(rb"[0-9.][eEdD]$")
_OTHER_BASE = re.compile(rb"[xXbBoO][0-9A-Fa-f]")
_MAY_HAVE_GROUPS = re.compile(rb"[+-]?(?:[0-9]+|[1-9][0-9]{0,2}(?:\.[0-9]{3})+)")
"""A comma and a digit after such a number continue it: 1,234 or, in half of the world, 1.234,5 and 3,14."""

_NAME_AND_VALUE = 2
MAX_VALUE_LENGTH = 1024
"""Longer text is not a value: the filter matched a whole line."""


@dataclass(slots=True)
class _LongerName:
    """The longer name that was found for a metric.

    Attributes:
        name: The whole name.
        held: Its first reading, until the name is printed again.
        counts: Whether readings of it have been returned.
    """

    name: str
    held: list[MetricLog] = field(default_factory=list)
    counts: bool = False


class TextParser(LineParser):
    """Reads lines of text.

    Args:
        filters: RE2 patterns in order of preference; empty: metrics are found by their names.
        limit: Examined length of a line, in bytes.
        file_format: The user's format, refused unless it is TEXT.

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
        self.names, self.filters = tuple(names), tuple(filters)
        self._names = {name.encode(): name for name in self.names}
        self._reads_escapes = any("1b" in text.lower() or "033" in text for text in filters)
        self._patterns = _compiled(self.filters)
        self._find, self._shorter = _search(self.names)
        self._exact: set[str] = set()  # metrics whose name was found without other words
        self._longer: dict[str, _LongerName] = {}  # by metric
        super().__init__(self._names, limit)

    @override
    def finish(self) -> list[MetricLog]:
        readings = super().finish()
        for longer in self._longer.values():
            readings += longer.held
            longer.held.clear()
        return readings

    @override
    def _read_lines(self, data: bytes, start: int, stop: int) -> list[MetricLog]:
        if self._is_dense(data, start, stop):
            return self._named(data, start, stop)
        return super()._read_lines(data, start, stop)

    def _is_dense(self, data: bytes, start: int, stop: int) -> bool:
        """Whether names are so frequent in plain lines that these are searched as one text."""
        size = stop - start
        if self._patterns or size > self._limit or len(self._words) > _MOST_COUNTED:
            return False
        if sum(data.count(word, start, stop) for word in self._words) * _DENSE_BYTES < size:
            return False
        return all(data.find(mark, start, stop) < 0 for mark in (b"\r", b"\x1b", _STEP_MARK))

    def _read(self, line: CandidateLine) -> Iterable[MetricLog]:
        if not self._reads_escapes:
            line = CandidateLine(without_control_sequences(line.text), line.cut)
        text = line.text
        step = _step_of(text) if _STEP_MARK in text else None
        if not self._patterns:
            return self._named(text, 0, len(text), is_cut=line.cut, step=step)
        return [MetricLog(_time_of(text, 0), name, value, step) for name, value in self._matches(line)]

    def _named(
        self, text: bytes, start: int, stop: int, *, is_cut: bool = False, step: int | None = None
    ) -> list[MetricLog]:
        """Return the readings of metrics found by their names in lines; avoids calls, since it is hot."""
        readings: list[MetricLog] = []
        names, exact, shorter = self._names, self._exact, self._shorter
        begin, time = -1, ZERO_TIME
        for match in self._find.finditer(text, start, stop):
            name, (place, end) = names.get(match[1]), match.span()
            if name is None or (is_cut and end == stop):  # the end may have lost digits
                continue
            line = text.rfind(b"\n", start, place) + 1 or start
            if line != begin:
                begin, time = line, _time_of(text, line)
            words = qualifier(text, place) if place > begin else ""
            if words and words[-1] != " " and not _is_read_by_katib(name, match[2], words):
                continue
            value = match[3]
            if value is None or (end < stop and text[end] != _NEWLINE and _is_cut_off(text, match)):
                self.notes.refuse(name, text[begin : _end_of_line(text, place, stop)], place - begin)
                continue
            reading = MetricLog(time, name, value.decode(), step)
            if words:
                readings += self._take_longer(name, words + name, reading)
            else:
                readings.append(reading)
                if name not in exact:
                    self._take_exact(name)
            if name in shorter:
                for metric in shorter[name]:
                    readings += self._take_longer(metric, words + name)
        return readings

    def _take_exact(self, name: str) -> None:
        """Record that the name of a metric is printed without other words: longer ones no longer count."""
        self._exact.add(name)
        self._longer.pop(name, None)
        self.notes.ambiguous.pop(name, None)

    def _take_longer(self, metric: str, whole_name: str, reading: MetricLog | None = None) -> Iterator[MetricLog]:
        """Yield the readings that count after a longer name was found, which may be a separate metric."""
        if metric in self._exact or metric in self.notes.ambiguous:
            return
        new = [] if reading is None else [reading]
        longer = self._longer.setdefault(metric, _LongerName(whole_name))
        if longer.name != whole_name:
            self.notes.ambiguous[metric] = (longer.name, whole_name)
            longer.held.clear()
            if longer.counts:
                yield MetricLog(ZERO_TIME, metric, UNAVAILABLE)
        elif new and not longer.held and not longer.counts:
            longer.held = new
        else:
            yield from longer.held
            yield from new
            longer.held, longer.counts = [], longer.counts or bool(new)

    def _matches(self, line: CandidateLine) -> Iterator[tuple[str, str]]:
        text = line.text if line.text.isascii() else line.text.decode(errors="replace").encode()
        for pattern in self._patterns:
            for match in pattern.finditer(text):
                name, raw = self._names.get((match.group(1) or b"").strip()), match.group(2)
                if name is None or not raw or not raw.strip() or (line.cut and match.end() == len(text)):
                    continue
                value = clean_value(raw)
                start, end = match.span(2)
                if parse_value(value) is None:
                    is_taken = value[:1].isalpha() and match.re.groups == _NAME_AND_VALUE
                else:
                    start += len(raw) - len(raw.lstrip())
                    before = text[max(0, start - 3) : start]
                    began = (_EXPONENT if text[start : start + 1] in b"+-" else _BEGAN).search(before)
                    is_column, is_last = before.endswith(b","), match.end() == end
                    is_taken = not began and not _goes_on(
                        text[start:end], text, end, is_column=is_column, is_last=is_last
                    )
                if is_taken:
                    yield name, value
                else:
                    self.notes.refuse(name, text, match.start())


def _goes_on(value: bytes, text: bytes, end: int, *, is_column: bool = False, is_last: bool = True) -> bool:
    """Whether the number that ends at a position of a line is only the beginning of a longer one."""
    after = text[end : end + 16]
    if not after:
        return False
    if _CONTINUED.match(after) or (value.lstrip(b"+-") == b"0" and _OTHER_BASE.match(after)):
        return True
    if is_last and _CALCULATED.match(after):
        return True
    if after[:1] == b"," and after[1:2].isdigit() and not is_column:
        return _MAY_HAVE_GROUPS.fullmatch(value) is not None
    return after[0] > 0x7F and after.decode(errors="replace")[0].isnumeric()  # noqa: PLR2004 - the last of ASCII


def _is_read_by_katib(name: str, sign: bytes, words: str) -> bool:
    """Whether Katib reads a metric from a longer word, as `loss` from `train/loss=0.5`."""
    return sign == b"=" and not words[-1].isalnum() and _KATIBS_NAME.fullmatch(name) is not None


def _is_cut_off(text: bytes, match: re.Match[bytes]) -> bool:
    """Whether the number found after a name is part of a longer one."""
    return _goes_on(match[3], text, match.end()) or _THOUSANDS.match(text, match.start(3)) is not None


def _end_of_line(text: bytes, start: int, stop: int) -> int:
    end = text.find(b"\n", start, stop)
    return stop if end < 0 else end


def clean_value(raw: bytes) -> str:
    """Return a value in its stored form; empty if it is not a value."""
    text = raw[: 4 * MAX_VALUE_LENGTH + 1].decode(errors="replace").strip()
    return text.replace("\0", "\ufffd") if len(text) <= MAX_VALUE_LENGTH else ""  # PostgreSQL stores no NUL in text


def _time_of(text: bytes, start: int) -> datetime:
    """Return the time before the first blank of the line that starts there."""
    if not text[start : start + 1].isdigit():
        return ZERO_TIME
    word, blank, _ = text[start : start + MAX_TIMESTAMP_LENGTH + 1].partition(b" ")
    return (parse_time(word.decode(errors="replace")) if blank else None) or ZERO_TIME


def _step_of(line: bytes) -> int | None:
    match = _STEP.search(line)
    return None if match is None else int(match[1])


@lru_cache(maxsize=64)
def _compiled(patterns: tuple[str, ...]) -> Sequence[Any]:
    """Return the compiled filters; trials of one experiment share them."""
    compiled: list[Any] = []
    errors: list[FieldError] = []
    for index, text in enumerate(patterns):
        try:
            compiled.append(compile_format(text, f"source.filter.metricsFormat[{index}]"))
        except InvalidError as error:
            errors += error.errors
    if errors:
        raise InvalidError(errors)
    return compiled


@lru_cache(maxsize=64)
def _search(names: tuple[str, ...]) -> tuple[re.Pattern[bytes], Mapping[str, Sequence[str]]]:
    """Return the pattern that finds these names, and by name the others that are its suffixes."""
    plain = [name for name in names if re.fullmatch(r"[\w-]+", name, re.ASCII)]
    spelled = [name for name in names if name not in plain] if len(plain) > _MOST_ALTERNATIVES else names
    alternatives = [re.escape(name.encode()) for name in sorted(spelled, key=len, reverse=True)]
    if len(spelled) < len(names):
        alternatives.append(rb"[\w-]++")
    pattern = re.compile(rb"(?<![\w-])(%b)" % b"|".join(alternatives) + _SIGN_AND_VALUE)
    return pattern, {name: [end for end in plain if name.endswith(f" {end}")] for name in names if " " in name}
