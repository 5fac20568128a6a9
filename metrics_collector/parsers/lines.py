r"""Parsers of lines: those that contain one of the wanted words are cut out of a stream of bytes and looked at.

Training logs are large and metric lines rare, so the stream is searched as bytes for the words and only lines around a
hit are cut out; all other lines cost one pass of a substring search.

A line ends at `\n` or `\r` (progress bars redraw with `\r`), or where the stream ends. Only `\n` counts as a line, as
`wc -l` counts. Of a line longer than MAX_LINE_BYTES only the first MAX_LINE_BYTES are examined; the rest is skipped, so
memory stays bounded whatever is printed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import re2

from katib.model.metrics import MetricLog

MAX_LINE_BYTES = 1 << 20
MAX_SHOWN_BYTES = 80
"""Kept of a line to be shown."""

# Sequences of a terminal: those that change how text looks or is called (colours, character sets, titles, links), and
# all others, which move, erase or switch. A command that is never ended is none: the rest of its line is text.
_LOOKS = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*m|[(-/][ -~]|[]PX^_][^\x07\x1b\r\n]*(?:\x07|\x1b\\))")
_OTHERS = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]*[0-~])?")

# Up to so many words one substring search each (about 2 GB/s) beats one RE2 alternation (about 0.6 GB/s).
_MAX_SEARCHES = 3

_Find = Callable[[bytes, int, int], int]
"""Returns where the first hit in data[start:stop] is; stop without one."""


@dataclass(slots=True)
class Notes:
    """What a parser has seen.

    Attributes:
        lines: Lines so far, a last one without line end included.
        size_bytes: Bytes so far.
        long_lines: Lines of which only the first part was examined.
        broken_lines: Lines that mention a metric but could not be decoded.
        refused: By metric: how many of its values are not a number as it stands there, and the first of their lines.
        ambiguous: By metric: two longer names that end with its name, of which either may be meant.
    """

    lines: int = 0
    size_bytes: int = 0
    long_lines: int = 0
    broken_lines: int = 0
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)
    ambiguous: dict[str, tuple[str, str]] = field(default_factory=dict)

    def refuse(self, metric: str, line: bytes, start: int) -> None:
        """Note a value that is not a number as it stands there.

        Args:
            metric: Whose.
            line: Where it stands.
            start: Where in it; of a long line only what is near is kept.
        """
        count, first = self.refused.get(metric, (0, ""))
        if not count:
            begin = start if len(line) > MAX_SHOWN_BYTES else 0
            first = line[begin : begin + MAX_SHOWN_BYTES].decode(errors="replace")
        self.refused[metric] = (count + 1, first)


def without_control_sequences(text: bytes) -> bytes:
    """Return a line without the control sequences of terminals; a tab stands for one that moves or erases."""
    return _OTHERS.sub(b"\t", _LOOKS.sub(b"", text)) if b"\x1b" in text else text


class Line(NamedTuple):
    """A line that contains a wanted word, without its end."""

    text: bytes
    cut: bool
    """True when the line went on beyond the limit."""


class Parser(ABC):
    """Finds readings of the metrics it was made for, in each candidate line by itself. Not thread-safe.

    Args:
        words: A candidate contains any of them.
        limit: Longest part of a line that is examined, in bytes.

    Attributes:
        notes: What was seen so far.
    """

    def __init__(self, words: Iterable[bytes], limit: int = MAX_LINE_BYTES) -> None:
        self.notes = Notes()
        self._words = _shortest(tuple(words))
        self._limit = limit
        self._finds = _finds(self._words)
        self._pending = bytearray()  # the last line so far, up to the limit
        self._pending_size = 0  # its length including what was skipped
        self._line_open = False  # bytes came after the last `\n`

    def feed(self, data: bytes) -> list[MetricLog]:
        """Return the readings of all lines that end in this chunk. Their time is ZERO_TIME when they carry none."""
        notes, readings, start = self.notes, list[MetricLog](), 0
        if not data:
            return readings
        notes.size_bytes += len(data)
        notes.lines += data.count(b"\n") - self._line_open
        self._line_open = not data.endswith(b"\n")
        notes.lines += self._line_open
        if self._pending_size:
            end = _line_end(data, 0, len(data))
            self._hold(data, 0, end)
            if end == len(data):
                return readings
            readings += self._end_line()
            start = end + 1
        last = max(data.rfind(b"\n", start), data.rfind(b"\r", start))
        if last >= start:
            readings += self._read_lines(data, start, last)
            start = last + 1
        if start < len(data):
            self._hold(data, start, len(data))
        return readings

    def finish(self) -> list[MetricLog]:
        """Return the readings of a last line without line end, and those that were held back."""
        return self._end_line()

    def _end_line(self) -> list[MetricLog]:
        if not self._pending_size:
            return []
        line = Line(bytes(self._pending), self._pending_size > self._limit)
        self._pending.clear()
        self._pending_size = 0
        self.notes.long_lines += line.cut
        return list(self._read(line)) if any(word in line.text for word in self._words) else []

    def _read_lines(self, data: bytes, start: int, stop: int) -> list[MetricLog]:
        """Return the readings of complete lines, all but the end of the last one."""
        return [reading for line in self._candidates(data, start, stop) for reading in self._read(line)]

    @abstractmethod
    def _read(self, line: Line) -> Iterable[MetricLog]:
        """Return the readings of a line."""

    def _hold(self, data: bytes, start: int, end: int) -> None:
        room = max(0, self._limit - self._pending_size)
        self._pending += data[start : min(end, start + room)]
        self._pending_size += end - start

    def _candidates(self, data: bytes, start: int, stop: int) -> Iterator[Line]:
        """Yield the candidates among the complete lines in data[start:stop]."""
        has_cr = data.find(b"\r", start, stop) >= 0
        hits = [-1] * len(self._finds)  # of each search the next hit, once it is at or behind the start
        while True:
            for place, find in enumerate(self._finds):
                if hits[place] < start:
                    hits[place] = find(data, start, stop)
            if (hit := min(hits, default=stop)) >= stop:
                return
            begin = data.rfind(b"\n", start, hit) + 1 or start
            if has_cr:
                begin = data.rfind(b"\r", begin, hit) + 1 or begin
            end = _line_end(data, hit, stop) if has_cr else _newline(data, hit, stop)
            cut = end - begin > self._limit
            self.notes.long_lines += cut
            yield Line(data[begin : begin + self._limit] if cut else data[begin:end], cut)
            start = end


def _line_end(data: bytes, start: int, stop: int) -> int:
    newline = _newline(data, start, stop)
    carriage = data.find(b"\r", start, newline)
    return newline if carriage < 0 else carriage


@lru_cache(maxsize=64)
def _shortest(words: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Drop words that contain another one: who finds `loss` finds `val_loss` too."""
    unique = {word for word in words if word}
    return tuple(sorted(word for word in unique if not any(other != word and other in word for other in unique)))


@lru_cache(maxsize=64)
def _finds(words: tuple[bytes, ...]) -> tuple[_Find, ...]:
    """Return searches that together find every word."""
    if len(words) > _MAX_SEARCHES:
        return (_alternation(words),)
    return tuple(_search(word) for word in words)


def _search(word: bytes) -> _Find:
    def find(data: bytes, start: int, stop: int) -> int:
        hit = data.find(word, start, stop)
        return stop if hit < 0 else hit

    return find


_newline = _search(b"\n")


def _alternation(words: tuple[bytes, ...]) -> _Find:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes are bytes
    options.never_capture = True
    pattern = re2.compile(b"|".join(re2.escape(word) for word in words), options)

    def find(data: bytes, start: int, stop: int) -> int:
        match = pattern.search(data, start, stop)
        return stop if match is None else int(match.start())

    return find
