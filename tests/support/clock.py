"""A clock that tests advance.

Differs from the real clock: time passes only in `advance`. A thread that waits on a condition directly, without the
clock, is not woken by it.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta


class VirtualClock:
    """A clock that stands still until it is advanced. Thread-safe."""

    def __init__(self, start: datetime = datetime(2024, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = self._stepped = 0.0
        self._lock = threading.Lock()
        self._waiting: dict[object, tuple[threading.Condition, float]] = {}

    def now(self) -> datetime:
        """Return the start plus the time advanced, and the steps."""
        return self._start + timedelta(seconds=self._elapsed + self._stepped)

    def monotonic(self) -> float:
        """Return the seconds advanced."""
        return self._elapsed

    def wait(self, condition: threading.Condition, timeout_seconds: float | None = None) -> None:
        """Wait on a condition until it is notified or the clock was advanced by this much."""
        ticket = object()
        if timeout_seconds is not None:
            with self._lock:
                deadline = self._elapsed + timeout_seconds
                self._waiting[ticket] = (condition, deadline)
        try:
            if timeout_seconds is None or timeout_seconds > 0:
                condition.wait()
        finally:
            with self._lock:
                self._waiting.pop(ticket, None)

    def advance(self, seconds: float) -> None:
        """Advance time and wake the threads that waited for it. Call without holding a condition that is waited on."""
        with self._lock:
            self._elapsed += seconds
            due = [condition for condition, deadline in self._waiting.values() if deadline <= self._elapsed]
        for condition in due:
            with condition:
                condition.notify_all()

    def step(self, seconds: float) -> None:
        """Step the wall clock only; the monotonic clock of a suspended machine behaves the same."""
        self._stepped += seconds

    @property
    def waiting_count(self) -> int:
        """The number of threads that wait with a timeout, so that a test can tell when to advance."""
        with self._lock:
            return len(self._waiting)
