"""How often, and how long apart, a request is tried again. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping

from katib.backoff import Backoff

RETRIED_STATUSES = frozenset((429, 500, 502, 503, 504))
BACKOFF = Backoff(0.05, 2.0, factor=4.0, jitter=0.5)
MAX_ATTEMPTS = 5
"""About four seconds in all: it outlasts a hiccup. The caller has a work queue with patience for real outages."""
LONGEST_RETRY_AFTER_SECONDS = 10.0
"""A server that asks for more is believed, but not waited for: a worker thread has other things to do."""


def pause_before(attempt: int, retry_after_seconds: float = 0.0) -> float | None:
    """Return how long to wait before an attempt (the second is 2); None when it is not worth it."""
    if attempt > MAX_ATTEMPTS or retry_after_seconds > LONGEST_RETRY_AFTER_SECONDS:
        return None
    return retry_after_seconds + BACKOFF.pause_seconds(attempt - 1, random.random())


def retry_after(headers: Mapping[str, str]) -> float:
    """Return what the Retry-After header asks for in seconds; 0 when it is absent or a date."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0
