"""A queue of keys to work on.

Laws:

1. A key is never processed twice at once: between `get` and `done` no other worker gets it.
2. No add is lost: a key added while it is processed comes again after `done`.
3. Adds coalesce: a key waits at most once, however often it is added; of several delayed adds the earliest counts.

Keys come out in the order in which they became ready.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from katib.runtime.clock import Clock, SystemClock

K = TypeVar("K", bound=Hashable)

FIRST_RETRY_SECONDS = 0.005
"""Long enough for an informer to catch up with the write that made the first try stale."""

LONGEST_RETRY_SECONDS = 30.0
"""A service that comes back after an outage is noticed within half a minute; one call in 30 s costs nothing."""


class WorkQueue(Generic[K]):
    """De-duplicating, delaying, rate-limiting queue. Safe to call from any thread.

    Args:
        clock: Where delays and timeouts are measured.
        first_retry_seconds: Delay of the first `add_rate_limited` of a key; it doubles with every further one.
        longest_retry_seconds: Where the doubling ends.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        first_retry_seconds: float = FIRST_RETRY_SECONDS,
        longest_retry_seconds: float = LONGEST_RETRY_SECONDS,
    ) -> None:
        self._clock = clock or SystemClock()
        self._first_retry_seconds = first_retry_seconds
        self._longest_retry_seconds = longest_retry_seconds
        self._condition = threading.Condition(threading.Lock())
        self._ready: deque[K] = deque()
        self._pending: set[K] = set()  # waits in _ready, or will when its worker is done
        self._processing: set[K] = set()
        self._delayed: list[tuple[float, int, K]] = []  # heap; an entry counts only while _due names its moment
        self._due: dict[K, float] = {}
        self._order = itertools.count()
        self._failures: dict[K, int] = {}
        self._shut_down = False

    def add(self, key: K) -> None:
        """Ask for a key to be processed soon."""
        with self._condition:
            if self._admit(key):
                self._condition.notify()

    def add_after(self, key: K, seconds: float) -> None:
        """Ask for a key to be processed after a delay, unless an earlier moment is already planned."""
        if seconds <= 0:
            self.add(key)
            return
        with self._condition:
            moment = self._clock.monotonic() + seconds
            if self._shut_down or self._due.get(key, moment + 1) <= moment:
                return
            self._due[key] = moment
            heapq.heappush(self._delayed, (moment, next(self._order), key))
            if self._delayed[0][2] == key:
                self._condition.notify()

    def add_rate_limited(self, key: K) -> float:
        """Ask for another try of a key after its back-off; return the delay in seconds."""
        with self._condition:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
        # Beyond 2**60 the cap has long been reached; the bound keeps the power from overflowing.
        delay = min(self._longest_retry_seconds, self._first_retry_seconds * 2.0 ** min(failures, 60))
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Say that a key succeeded: its next back-off starts anew."""
        with self._condition:
            self._failures.pop(key, None)

    def failure_count(self, key: K) -> int:
        """Return how many times a key was rate limited since it was last forgotten."""
        with self._condition:
            return self._failures.get(key, 0)

    def get(self, timeout_seconds: float | None = None) -> K | None:
        """Return the next key, to be given back with `done`; None when the time is up or the queue was shut down."""
        with self._condition:
            deadline = None if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
            try:
                while not self._shut_down:
                    now = self._clock.monotonic()
                    self._promote(now)
                    if self._ready:
                        return self._take()
                    if deadline is not None and now >= deadline:
                        return None
                    self._clock.wait(self._condition, self._patience(now, deadline))
                return None
            finally:
                # A notification wakes one waiter, which may leave with a key while it was the one that kept the time
                # of delayed keys: whoever leaves hands what remains to the next.
                if self._ready or self._delayed:
                    self._condition.notify()

    def done(self, key: K) -> None:
        """Say that a key from `get` was processed; it comes again if it was added meanwhile."""
        with self._condition:
            self._processing.discard(key)
            if key in self._pending:
                self._ready.append(key)
                self._condition.notify()

    def shut_down(self) -> None:
        """Refuse further adds, drop what waits, and make every `get` return None. Calling it twice is fine."""
        with self._condition:
            self._shut_down = True
            self._ready.clear()
            self._pending.clear()
            self._delayed.clear()
            self._due.clear()
            self._condition.notify_all()

    @property
    def is_shut_down(self) -> bool:
        """Whether `shut_down` was called."""
        return self._shut_down

    def __len__(self) -> int:
        """Return how many keys are ready; delayed ones do not count."""
        with self._condition:
            self._promote(self._clock.monotonic())
            return len(self._ready)

    def _admit(self, key: K) -> bool:
        """Note that a key waits; return whether a worker may take it at once."""
        if self._shut_down or key in self._pending:
            return False
        self._pending.add(key)
        if key in self._processing:
            return False
        self._ready.append(key)
        return True

    def _take(self) -> K:
        key = self._ready.popleft()
        self._pending.discard(key)
        self._processing.add(key)
        return key

    def _promote(self, now: float) -> None:
        """Make the delayed keys ready whose moment has come."""
        while self._delayed and self._delayed[0][0] <= now:
            moment, _, key = heapq.heappop(self._delayed)
            if self._due.get(key) == moment:
                del self._due[key]
                self._admit(key)

    def _patience(self, now: float, deadline: float | None) -> float | None:
        """Return for how long nothing is to be done; None: until somebody adds a key."""
        if self._delayed and (deadline is None or self._delayed[0][0] < deadline):
            return self._delayed[0][0] - now
        return None if deadline is None else deadline - now
