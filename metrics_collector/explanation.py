"""Explanation of a missing metric: a sample of the output, and the most similar candidate in it.

The sample is the first and the last part of the output, a bounded number of bytes that are stored unparsed; only an
explanation reads them.
"""

from __future__ import annotations

import difflib
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from metrics_collector.parsers.lines import printed_metrics, without_control_sequences

SAMPLE_BYTES = 32 << 10
"""Bytes kept of the beginning, and of the end."""

MAX_LINE_LENGTH = 2_000
"""Characters examined of a sampled line; keeps the pattern's cost linear in the sample."""

MAX_CANDIDATES = 500
"""Different names compared; other trials wait while an explanation is computed."""

MAX_NAMES = 10
"""Similar names that are compared closely."""

MAX_QUOTE_LENGTH = 80

LEAST_LIKENESS = 0.45
"""Minimum similarity: a candidate below it would mislead the reader (`epoch 3` for `loss`)."""

CONTAINED_LIKENESS = 0.6
"""Minimum similarity of names of which one contains the other (`loss` and `validation_loss`)."""

# In addition to names with `=` or `:`: "loss 0.21", "val loss -> 3e-4", "'loss' => nan"
_CANDIDATE = re.compile(
    r"""(?<![\w/.|-])(?P<name>[^\W\d][\w/.|-]{0,100}(?:\x20[\w/.|-]{1,40})?)["']?\s{0,3}
        (?:->|=>|\s)\s{0,3}["']?
        (?P<number>[+-]?(?:\d+(?:\.\d*)?(?:[Ee][+-]?\d+)?|\.\d+(?:[Ee][+-]?\d+)?|(?i:nan|inf(?:inity)?)\b)%?)""",
    re.VERBOSE,
)


@dataclass(slots=True)
class OutputSample:
    """Stores the first and the last bytes of a stream."""

    _size: int = SAMPLE_BYTES
    _head: bytearray = field(default_factory=bytearray)
    _tail: deque[bytes] = field(default_factory=deque)
    _tail_size: int = 0

    def add(self, data: bytes) -> None:
        """Add a chunk; costs no more than a copy of the stored part."""
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
        parts = (bytes(self._head), b"".join(self._tail))
        text = "".join(without_control_sequences(part).decode(errors="replace") for part in parts)
        return [line[:MAX_LINE_LENGTH].strip() for line in text.splitlines() if line.strip()]


def nearest(metric: str, lines: Iterable[str]) -> str:
    """Return the part of a line most similar to a reading of the metric; empty if there is none."""
    found = _candidates(lines)
    scores = {name: _likeness(metric, name) for name in found}
    best = max(scores, key=lambda name: scores[name], default="")
    return found[best] if best and scores[best] > LEAST_LIKENESS else ""


def names_like(metric: str, lines: Iterable[str]) -> list[str]:
    """Return the names printed with `=` or `:` that are similar to the metric's, the most similar first."""
    names = islice(dict.fromkeys(name for line in lines for name, _ in printed_metrics(line)), MAX_CANDIDATES)
    scores = {name: _likeness(metric, name) for name in names if len(name) <= MAX_QUOTE_LENGTH}
    likely = [name for name in scores if scores[name] > LEAST_LIKENESS]
    return sorted(likely, key=lambda name: -scores[name])[:MAX_NAMES]


def _candidates(lines: Iterable[str]) -> dict[str, str]:
    """Return the text of possible readings in these lines, by name."""
    found: dict[str, str] = {}
    for line in lines:
        for name, text in printed_metrics(line):
            found.setdefault(name, text)
        for match in _CANDIDATE.finditer(line):
            for start, word in _endings(match["name"]):
                found.setdefault(word, match.group()[start:])
        if len(found) > MAX_CANDIDATES:
            break
    return found


def nearest_name(metric: str, names: Iterable[str]) -> str:
    """Return the name most similar to the metric's; empty if there is none."""
    scores = {name: _likeness(metric, name) for name in islice(names, MAX_CANDIDATES)}
    best = max(scores, key=lambda name: scores[name], default="")
    return best if best and scores[best] > LEAST_LIKENESS else ""


def quote(text: str) -> str:
    """Return text in double quotes, on one line and of bounded length."""
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
