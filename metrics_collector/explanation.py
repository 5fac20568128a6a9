"""Why a metric was not found: a sample of the output, and the candidate in it that looks most like the metric.

The sample is the first and the last part of the output, a bounded number of bytes that are kept without being looked
at; only an explanation that is asked for reads them.
"""

from __future__ import annotations

import difflib
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

SAMPLE_BYTES = 32 << 10
"""Kept of the beginning, and of the end."""

MAX_LINE_LENGTH = 2_000
"""Examined of one sampled line; keeps the pattern's cost linear in the sample."""

MAX_CANDIDATES = 500
"""Different names compared; an explanation is asked for while other trials wait."""

MAX_QUOTE_LENGTH = 80

LEAST_LIKENESS = 0.45
"""A candidate less alike than this would send the reader astray (`epoch 3` for `loss`)."""

CONTAINED_LIKENESS = 0.6
"""At least this alike are names of which one contains the other (`loss` and `validation_loss`)."""

# `name sep number`: "Loss: 0.21", "acc=1", "val loss -> 3e-4", "'loss' : nan"
_CANDIDATE = re.compile(
    r"""(?<![\w/.|-])(?P<name>[^\W\d][\w/.|-]{0,100}(?:\x20[\w/.|-]{1,40})?)["']?\s{0,3}
        (?:[:=]|->|=>|\s)\s{0,3}["']?
        (?P<number>[+-]?(?:\d+(?:\.\d*)?(?:[Ee][+-]?\d+)?|\.\d+(?:[Ee][+-]?\d+)?|(?i:nan|inf(?:inity)?)\b)%?)""",
    re.VERBOSE,
)


@dataclass(slots=True)
class OutputSample:
    """Keeps the first and the last bytes of a stream."""

    _size: int = SAMPLE_BYTES
    _head: bytearray = field(default_factory=bytearray)
    _tail: deque[bytes] = field(default_factory=deque)
    _tail_size: int = 0

    def add(self, data: bytes) -> None:
        """Take a chunk; costs no more than a copy of the part that is kept."""
        room = self._size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data:
            return
        self._tail.append(data[-self._size :])
        self._tail_size += len(self._tail[-1])
        while self._tail_size - len(self._tail[0]) >= self._size:
            self._tail_size -= len(self._tail.popleft())

    def lines(self) -> list[str]:
        """Return the sampled lines without blank ones, in order; long ones are shortened."""
        text = self._head.decode(errors="replace") + b"".join(self._tail).decode(errors="replace")
        return [line[:MAX_LINE_LENGTH].strip() for line in text.splitlines() if line.strip()]


def nearest(metric: str, lines: list[str]) -> str:
    """Return the part of a line that looks most like a reading of the metric; empty when none looks like a reading."""
    best, best_score = "", LEAST_LIKENESS
    seen: set[str] = set()
    for line in lines:
        for match in _CANDIDATE.finditer(line):
            name = match["name"]
            if name in seen:
                continue
            seen.add(name)
            if len(seen) > MAX_CANDIDATES:
                return best
            for start, word in _endings(name):
                score = _likeness(metric, word)
                if score > best_score:
                    best, best_score = match.group()[start:], score
    return best


def nearest_name(metric: str, names: Iterable[str]) -> str:
    """Return the name that looks most like that of the metric; empty when none does."""
    scores = {name: _likeness(metric, name) for name in islice(names, MAX_CANDIDATES)}
    best = max(scores, key=lambda name: scores[name], default="")
    return best if best and scores[best] > LEAST_LIKENESS else ""


def quote(text: str) -> str:
    """Return text in double quotes, on one line and of a bounded length."""
    printable = "".join(char if char.isprintable() else "\ufffd" for char in text.strip())
    return f'"{printable[:MAX_QUOTE_LENGTH]}…"' if len(printable) > MAX_QUOTE_LENGTH else f'"{printable}"'


def _endings(name: str) -> list[tuple[int, str]]:
    """Return a name of two words, and its last word: in `epoch loss: 3` either may be the name."""
    first, blank, last = name.partition(" ")
    return [(0, name), (len(first) + 1, last)] if blank else [(0, name)]


def _likeness(metric: str, name: str) -> float:
    wanted, found = _plain(metric), _plain(name)
    contained = bool(wanted and found) and (wanted in found or found in wanted)
    ratio = difflib.SequenceMatcher(None, wanted, found, autojunk=False).ratio()
    return max(ratio, CONTAINED_LIKENESS * contained)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.casefold())
