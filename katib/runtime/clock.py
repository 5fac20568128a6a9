"""Time as an argument: whoever waits or stamps gets a clock, so tests never sleep."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Reads time and waits for it to pass. Safe to call from any thread."""

    def now(self) -> datetime:
        """Return the wall time, aware, in UTC."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start that never run backwards."""

    def wait(self, condition: threading.Condition, timeout_seconds: float | None = None) -> None:
        """Wait on a condition, which the caller holds, until it is notified or the time is up; None waits for ever.

        May also return early, as any wait on a condition: the caller looks again at what it waits for.
        """


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the wall time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start."""
        return time.monotonic()

    def wait(self, condition: threading.Condition, timeout_seconds: float | None = None) -> None:
        """Wait on a condition for at most this long."""
        condition.wait(timeout_seconds)
