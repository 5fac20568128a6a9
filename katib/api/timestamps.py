"""RFC 3339 time stamps of readings, as they stand in log lines and on the wire."""

from __future__ import annotations

import re
from datetime import UTC, datetime

# What Go's time.RFC3339 reads: a `T`, seconds, an optional fraction after a point or a comma, and a zone.
_RFC3339 = re.compile(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:[.,](\d+))?(Z|[+-]\d{2}:\d{2})", re.ASCII)

MAX_LENGTH = 64
"""Longer text is no time stamp; a cheap bound before a pattern is tried."""


def parse_time(text: str) -> datetime | None:
    """Return the time in UTC; None when the text is no RFC 3339 time stamp.

    Digits after the sixth of a fraction are cut off: the observation log keeps microseconds.
    """
    match = _RFC3339.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if match is None:
        return None
    seconds, fraction, zone = match.groups()
    try:
        return datetime.fromisoformat(f"{seconds}.{(fraction or '')[:6]:0<6}{zone}").astimezone(UTC)
    except (ValueError, OverflowError):  # the 30th of February; year 1 in a zone east of Greenwich
        return None


def format_timestamp(time: datetime) -> str:
    """Return RFC 3339 text in UTC, with a fraction of up to six digits and without its trailing zeros."""
    text = time.astimezone(UTC).replace(tzinfo=None).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"
