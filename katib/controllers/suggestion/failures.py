"""Failures in a row: how long to wait after each, and when to give up."""

from __future__ import annotations

from dataclasses import dataclass

from katib.controllers.settings import ControllerSettings
from katib.runtime.clock import Clock
from katib.runtime.objects import Key

FIRST_DELAY_SECONDS = 0.05
LONGEST_DELAY_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Streak:
    """Failures without a success between them.

    Attributes:
        count: How many.
        since: Monotonic time of the first.
        error: Text of the last.
    """

    count: int
    since: float
    error: str

    @property
    def delay_seconds(self) -> float:
        """How long to wait before the next attempt: doubling from 50 ms to 15 s."""
        return min(FIRST_DELAY_SECONDS * 2.0 ** min(self.count - 1, 16), LONGEST_DELAY_SECONDS)


class Failures:
    """Streaks by key. Each key is used by one thread at a time."""

    def __init__(self, clock: Clock, settings: ControllerSettings) -> None:
        self._clock = clock
        self._settings = settings
        self._streaks: dict[Key, Streak] = {}
        self._next_try: dict[Key, float] = {}

    def add(self, key: Key, error: str) -> Streak:
        """Count a failure."""
        now = self._clock.monotonic()
        old = self._streaks.get(key)
        streak = Streak(1, now, error) if old is None else Streak(old.count + 1, old.since, error)
        self._streaks[key] = streak
        self._next_try[key] = now + streak.delay_seconds
        return streak

    def wait_seconds(self, key: Key) -> float:
        """Return how long the next attempt has to wait, 0 when it may be made now."""
        return max(self._next_try.get(key, 0.0) - self._clock.monotonic(), 0.0)

    def is_hopeless(self, streak: Streak) -> bool:
        """Tell whether patience is over: many failures in a row, for a long time."""
        lasted = self._clock.monotonic() - streak.since
        return streak.count >= self._settings.service_attempts and lasted >= self._settings.service_patience_seconds

    def clear(self, key: Key) -> None:
        """Count a success."""
        self._streaks.pop(key, None)
        self._next_try.pop(key, None)
