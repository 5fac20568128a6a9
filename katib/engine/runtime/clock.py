"""Time as an argument: everything that waits or stamps gets a clock, so tests never sleep."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Reads time and waits for it to pass. Safe to call from any thread."""

    def now(self) -> datetime:
        """Return the wall time, aware, in UTC."""

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start that never run backwards."""

    def wait(self, condition: threading.Condition, timeout_seconds: float | None = None, /) -> object:
        """Wait on a condition, which the caller holds, until it is notified or the time is up; None waits forever.

        May also return early, as any wait on a condition: the caller looks again at what it waits for.
        """


class SystemClock:
    """The machine's clock."""

    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(time.monotonic)
    wait = staticmethod(threading.Condition.wait)


class SteadyTime:
    """Times to measure with: they begin at the wall time and then never jump, whatever is done to the wall clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall, self._monotonic = clock.now(), clock.monotonic()

    def now(self) -> datetime:
        """Return the time by which deadlines and pauses count."""
        return self._wall + timedelta(seconds=self._clock.monotonic() - self._monotonic)

    def at(self, monotonic: float) -> datetime:
        """Return the time at a moment of the clock's `monotonic`."""
        return self._wall + timedelta(seconds=monotonic - self._monotonic)
