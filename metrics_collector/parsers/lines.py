r"""Parsers of lines: cut the lines with a keyword out of a stream of bytes and examine them.

Training logs are large and lines with metrics are rare, so the stream is searched as bytes for the keywords and only
lines around a hit are cut out; all other lines cost one pass of a substring search.

A line ends at `\n` or `\r` (progress bars redraw with `\r`), or at the end of the stream. Only `\n` counts as a line,
as in `wc -l`. Of a line longer than MAX_LINE_BYTES only the first MAX_LINE_BYTES are examined and the rest is skipped,
so memory stays bounded.
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
"""Characters kept of a line for display."""

# Control sequences of a terminal: those that change the look of text (colours, character sets, titles, links), and all
# others, which move, erase or switch. An unterminated sequence is treated as text.
_LOOKS = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*m|[(-/][ -~]|[]PX^_][^\x07\x1b\r\n]*(?:\x07|\x1b\\))")
_OTHERS = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]*[0-~])?")

# Up to this number of words, one substring search each (about 2 GB/s) beats one RE2 alternation (about 0.6 GB/s).
_MAX_SEARCHES = 3

_Find = Callable[[bytes, int, int], int]
"""Returns the position of the first hit in data[start:stop]; stop if there is none."""


@dataclass(slots=True)
class ParserNotes:
    """Observations of a parser.

    Attributes:
        lines: Lines so far, including a last one without line end.
        size_bytes: Bytes so far.
        long_lines: Lines of which only the first part was examined.
        broken_lines: Lines that mention a metric but could not be decoded.
        refused: By metric: number of values that are not plain numbers, and the first of their lines.
        ambiguous: By metric: two longer names that end with its name, of which either may be meant.
    """

    lines: int = 0
    size_bytes: int = 0
    long_lines: int = 0
    broken_lines: int = 0
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)
    ambiguous: dict[str, tuple[str, str]] = field(default_factory=dict)

    def refuse(self, metric: str, line: bytes, start: int) -> None:
        """Record a value that is not a plain number.

        Args:
            start: Position of the value; of a long line only its surroundings are kept.
        """
        count, first = self.refused.get(metric, (0, ""))
        if not count:
            begin = start if len(line) > MAX_SHOWN_BYTES else 0
            first = line[begin : begin + MAX_SHOWN_BYTES].decode(errors="replace")
        self.refused[metric] = (count + 1, first)


def without_control_sequences(text: bytes) -> bytes:
    """Return a line without control sequences of terminals; a tab replaces those that move or erase."""
    return _OTHERS.sub(b"\t", _LOOKS.sub(b"", text)) if b"\x1b" in text else text


class CandidateLine(NamedTuple):
    """A line with a keyword, without its end."""

    text: bytes
    cut: bool
    """Whether the line was longer than the limit."""


class LineParser(ABC):
    """Finds readings of given metrics, in each candidate line separately. Not thread-safe.

    Args:
        words: A candidate contains any of them.
        limit: Examined length of a line, in bytes.
    """

    def __init__(self, words: Iterable[bytes], limit: int = MAX_LINE_BYTES) -> None:
        self.notes = ParserNotes()
        self._words = _shortest(tuple(words))
        self._limit = limit
        self._finds = _finds(self._words)
        self._pending = bytearray()  # the last line so far, up to the limit
        self._pending_size = 0  # its length including skipped bytes
        self._line_open = False  # bytes came after the last `\n`

    def feed(self, data: bytes) -> list[MetricLog]:
        """Return the readings of all lines that end in this chunk. Their time is ZERO_TIME if they have none."""
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
        """Return the readings of a last line without line end, and those held back."""
        return self._end_line()

    def _end_line(self) -> list[MetricLog]:
        if not self._pending_size:
            return []
        line = CandidateLine(bytes(self._pending), self._pending_size > self._limit)
        self._pending.clear()
        self._pending_size = 0
        self.notes.long_lines += line.cut
        return list(self._read(line)) if any(word in line.text for word in self._words) else []

    def _read_lines(self, data: bytes, start: int, stop: int) -> list[MetricLog]:
        """Return the readings of complete lines, without the end of the last one."""
        return [reading for line in self._candidates(data, start, stop) for reading in self._read(line)]

    @abstractmethod
    def _read(self, line: CandidateLine) -> Iterable[MetricLog]:
        """Return the readings of a line."""

    def _hold(self, data: bytes, start: int, end: int) -> None:
        room = max(0, self._limit - self._pending_size)
        self._pending += data[start : min(end, start + room)]
        self._pending_size += end - start

    def _candidates(self, data: bytes, start: int, stop: int) -> Iterator[CandidateLine]:
        """Yield the candidates among the complete lines in data[start:stop]."""
        has_cr = data.find(b"\r", start, stop) >= 0
        hits = [-1] * len(self._finds)  # the next hit of each search at or after the start
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
            yield CandidateLine(data[begin : begin + self._limit] if cut else data[begin:end], cut)
            start = end


def _line_end(data: bytes, start: int, stop: int) -> int:
    newline = _newline(data, start, stop)
    carriage = data.find(b"\r", start, newline)
    return newline if carriage < 0 else carriage


@lru_cache(maxsize=64)
def _shortest(words: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Drop words that contain another one: a search for `loss` finds `val_loss` too."""
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
    options.encoding = re2.Options.Encoding.LATIN1  # matches bytes
    options.never_capture = True
    pattern = re2.compile(b"|".join(re2.escape(word) for word in words), options)

    def find(data: bytes, start: int, stop: int) -> int:
        match = pattern.search(data, start, stop)
        return stop if match is None else int(match.start())

    return find


# Names of metrics in lines of text: the words before a `=` or `:`, back to a separator.
#
# `train loss: 0.05, val loss: 0.99` has the names `train loss` and `val loss`. Separators are
#
# - the beginning of the line, tabs, two blanks, brackets, quotes, and signs such as `,`, `;`, `|`, `=`, `:`;
# - words without a letter, such as `-` and `│`, and words that begin with a digit, such as numbers and times;
# - words that are not part of a name: levels of a log, values such as `nan`, numbered ones such as `epoch3`,
# conjunctions
#   (`and`, `with`), a word that ends a sentence, and one that is attached to the `=` or `:` before it, a value.

_REACH = 160
"""Bytes before a name that are searched for its other words."""

_SIGNS = b'\t\n\r\f\v,;|()[]{}<>"`=:!?*#&~^$\\'
_SEPARATED = bytes.maketrans(_SIGNS, b"\n" * len(_SIGNS))
_BLANK = 0x20

_WORD = re.compile(r"[^\W\d][\w@./%+'-]*(?<![.'])")
_NO_PART = re.compile(
    r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)"
    r"|(?i:nan|inf|infinity|none|null|true|false|and|or|with|to|at|the|is|has)"
    r"|(?i:epoch|step|iter|iteration|batch|round|rank|worker|gpu|fold|trial)[-_]?\d+"
)

_PRINTED = re.compile(
    r"""(?<![\w/.@-])(?P<name>[^\W\d](?:[\w/.@%-]|'\w)*+)['"]?\s*+[=:]\s*+(?:(?:np\.float\d+|(?:torch\.)?tensor)\()?
        (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[Ee][+-]?\d+)?|[+-]?(?i:nan|inf(?:inity)?)\b)""",
    re.VERBOSE,
)


def qualifier(text: bytes, start: int) -> str:
    """Return the words before a position that belong to the name, with the blank or sign after them; often empty."""
    before = text[max(0, start - _REACH) : start]
    words = before.translate(_SEPARATED).rpartition(b"\n")[2]
    if not words.strip():
        return ""
    is_value = len(words) < len(before) and before[-len(words) - 1] in b"=:" and words[0] != _BLANK
    found: list[str] = []
    glued = not words.endswith(b" ")
    parts = words.decode(errors="replace").removesuffix(" ").split(" ")
    for place in range(len(parts) - 1, -1, -1):
        word, is_glued = parts[place], glued and place == len(parts) - 1
        bare = word.rstrip("./@'") if is_glued else word
        if (is_value and not place) or not _WORD.fullmatch(bare) or _NO_PART.fullmatch(bare):
            break
        found.append(word if is_glued else f"{word} ")
    return "".join(reversed(found))


def printed_metrics(line: str) -> Iterator[tuple[str, str]]:
    """Yield the whole name of each number that a line names by `=` or `:`, and the text of both."""
    data = line.encode(errors="replace")
    for match in _PRINTED.finditer(line):
        words = qualifier(data, len(line[: match.start()].encode(errors="replace")))
        yield words + match["name"], words + match.group()
