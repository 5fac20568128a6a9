"""How often, and how long apart, a request is tried again. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping

RETRIED_STATUSES = frozenset((429, 500, 502, 503, 504))
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
MAX_ATTEMPTS = 5
"""About four seconds in all: it outlasts a hiccup. Whoever called has a work queue with patience for real outages."""
LONGEST_RETRY_AFTER_SECONDS = 10.0
"""A server that asks for more is believed, but not waited for: a worker thread has other things to do."""


def pause_before(attempt: int, retry_after_seconds: float = 0.0) -> float | None:
    """Return how long to wait before an attempt (the second is 2); None when it is not worth it.

    The pause grows fourfold and is spread over its upper half, so that many clients do not come back together.
    """
    if attempt > MAX_ATTEMPTS or retry_after_seconds > LONGEST_RETRY_AFTER_SECONDS:
        return None
    longest = min(FIRST_PAUSE_SECONDS * 4 ** (attempt - 2), LONGEST_PAUSE_SECONDS)
    return retry_after_seconds + random.uniform(longest / 2, longest)


def retry_after(headers: Mapping[str, str]) -> float:
    """Return what the Retry-After header asks for in seconds; 0 when it is absent or a date."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0
