"""JSON: one object per line, metrics under their names, time under `timestamp`, the step under `step`.

Reads more than Katib does:

- A metric may be a number as well as a string; the text of the number is kept unchanged. A string that is not a number
  (`"1,234.5"`) is noted with its line instead of being read; Katib keeps it.
- A step is kept: an integer under `global_step`, which does not restart in each epoch, or else under `step` or `epoch`.
  A fraction of an epoch (`"epoch": 0.5`) is not a step.
- A line that cannot be decoded is counted and skipped; Katib drops the whole collection.
- A numeric `timestamp` is seconds with a fraction. Katib reads the digits after the point as a count of nanoseconds
  (`.5` is 5 ns), so its times within a second are out of order; no program can rely on that, whereas the order of
  readings decides which one is the latest. Integer seconds and RFC 3339 text have the same meaning in both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from katib.model.metrics import ZERO_TIME, MetricLog, parse_time, parse_value
from metrics_collector.parsers.lines import MAX_LINE_BYTES, CandidateLine, LineParser, without_control_sequences
from metrics_collector.parsers.text import clean_value

TIME_KEY = "timestamp"
STEP_KEYS = ("global_step", "step", "epoch")

_MAX_STEP_DIGITS = 18
"""All such numbers fit into 64 bits."""


class _Number(str):
    """The text of a JSON number, NaN and Infinity included."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_Number)


class JsonParser(LineParser):
    """Reads lines of JSON objects.

    Args:
        names: The metrics to find, in the order in which one line reports them.
        limit: Examined length of a line, in bytes.
    """

    def __init__(self, names: Iterable[str], *, limit: int = MAX_LINE_BYTES) -> None:
        self._names = tuple(dict.fromkeys(names))
        super().__init__((word for name in self._names for word in _spellings(name)), limit)

    def _read(self, line: CandidateLine) -> Iterator[MetricLog]:
        entries = None if line.cut else _decode(without_control_sequences(line.text))
        if entries is None:
            self.notes.broken_lines += 1
            return
        time, step = _time_of(entries.get(TIME_KEY)), _step_of(entries)
        for name in self._names:
            value = entries.get(name)
            text = clean_value(value.encode(errors="replace")) if isinstance(value, str) else ""
            if parse_value(text) is not None:
                yield MetricLog(time, name, text, step)
            elif value:
                self.notes.refuse(name, line.text, max(0, line.text.find(b'"' + name.encode() + b'"')))


def _decode(line: bytes) -> dict[str, Any] | None:
    try:
        entries = _DECODER.decode(line.decode(errors="replace").strip())
    except (ValueError, RecursionError):
        return None
    return entries if isinstance(entries, dict) else None


def _spellings(name: str) -> Iterator[bytes]:
    yield name.encode()
    yield json.dumps(name)[1:-1].encode()  # as ASCII
    yield json.dumps(name, ensure_ascii=False)[1:-1].encode()
    yield name.replace("/", "\\/").encode()


def _step_of(entries: dict[str, Any]) -> int | None:
    for key in STEP_KEYS:
        found = entries.get(key)
        if isinstance(found, str) and len(found) <= _MAX_STEP_DIGITS and found.isascii() and found.isdecimal():
            return int(found)
    return None


def _time_of(stamp: object) -> datetime:
    time: datetime | None = None
    if isinstance(stamp, _Number):
        try:
            time = datetime.fromtimestamp(float(stamp), UTC)
        except (ValueError, OverflowError, OSError):
            time = None
    elif isinstance(stamp, str):
        time = parse_time(stamp)
    return time or ZERO_TIME
