"""Readings of metrics, as they travel from a collector to the observation log and back."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import NamedTuple

ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)
"""Time of a reading that carried none (Katib's `0001-01-01T00:00:00Z`)."""

# The decimal and named forms of Go's strconv.ParseFloat that training programs print; no blanks, no digit separators.
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?|nan)", re.IGNORECASE | re.ASCII)


class MetricLog(NamedTuple):
    """One reading: when, which metric, and the text that was printed."""

    time: datetime
    name: str
    value: str


def parse_value(text: str) -> float | None:
    """Return the number that a reading's text stands for, NaN and infinities included; None when it is no number."""
    return float(text) if _FLOAT.fullmatch(text) else None


def is_usable(text: str) -> bool:
    """Tell whether a reading may be compared, become the best or reach an algorithm: it is a finite number."""
    value = parse_value(text)
    return value is not None and math.isfinite(value)
