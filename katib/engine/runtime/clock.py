"""Time as an argument: code that waits or stamps gets a clock, so tests never sleep."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Reads time and waits for it to pass. Thread-safe."""

    def now(self) -> datetime:
        """Return the wall time, aware, in UTC."""

    def monotonic(self) -> float:
        """Return monotonic seconds from an arbitrary start."""

    def wait(self, condition: threading.Condition, timeout_seconds: float | None = None, /) -> object:
        """Wait on a condition held by the caller until it is notified or the timeout expires; None waits forever.

        May return early, as any wait on a condition: the caller checks its predicate again.
        """


class SystemClock:
    """The machine's clock."""

    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(time.monotonic)
    wait = staticmethod(threading.Condition.wait)


class SteadyTime:
    """Times for measuring: they begin at the wall time and never jump, even if the wall clock does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall, self._monotonic = clock.now(), clock.monotonic()

    def now(self) -> datetime:
        """Return the time for deadlines and pauses."""
        return self._wall + timedelta(seconds=self._clock.monotonic() - self._monotonic)

    def at(self, monotonic: float) -> datetime:
        return self._wall + timedelta(seconds=monotonic - self._monotonic)
