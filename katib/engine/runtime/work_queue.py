"""A queue of keys to work on.

Laws:

1. A key is never processed twice at once: between `get` and `done` no other worker gets it.
2. No add is lost: a key added while it is processed is returned again after `done`.
3. Adds coalesce: a key waits at most once, however often it is added; of several delayed adds the earliest counts.

Keys are returned in the order in which they became ready.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from katib.engine.runtime.clock import Clock, SystemClock
from katib.errors import Backoff

K = TypeVar("K", bound=Hashable)

RETRY = Backoff(0.005, 30.0)
"""The first delays are long enough for an informer to catch up with the write that made the first attempt stale. With
the longest, the recovery of a service is noticed within half a minute, and one call in 30 s is cheap."""


class WorkQueue(Generic[K]):
    """De-duplicating, delaying, rate-limiting queue. Thread-safe."""

    def __init__(self, clock: Clock | None = None, *, retry: Backoff = RETRY) -> None:
        self._clock = clock or SystemClock()
        self._retry = retry
        self._lock = threading.Lock()  # used directly if no thread waits: twice as fast as through the condition
        self._condition = threading.Condition(self._lock)
        self._ready: deque[K] = deque()
        self._pending: set[K] = set()  # waits in _ready, or will when its worker is done
        self._processing: set[K] = set()
        self._delayed: list[tuple[float, int, K]] = []  # heap; an entry counts only while _due has it
        self._due: dict[K, tuple[float, int]] = {}
        self._order = itertools.count()
        self._failures: dict[K, int] = {}
        self.is_shut_down = False
        self._announce: Callable[[], None] = self._condition.notify

    def tell(self, on_work: Callable[[], None]) -> None:
        """Register a callback for new keys, for a consumer that cannot block in `get`.

        It may also be called without a new key, and is called under the lock of the queue, so it must not block.
        """
        with self._lock:
            self._announce = on_work

    def add(self, key: K) -> None:
        with self._lock:
            if self.is_shut_down or key in self._pending:
                return
            self._pending.add(key)
            if key not in self._processing:
                self._ready.append(key)
                self._announce()

    def add_after(self, key: K, seconds: float) -> None:
        """Add a key after a delay, unless an earlier time is already planned."""
        if seconds <= 0:
            self.add(key)
            return
        with self._lock:
            moment = self._clock.monotonic() + seconds
            planned = self._due.get(key)
            if self.is_shut_down or (planned is not None and planned[0] <= moment):
                return
            self._due[key] = moment, next(self._order)
            heapq.heappush(self._delayed, (*self._due[key], key))
            if self._delayed[0][2] == key:
                self._announce()

    def add_rate_limited(self, key: K) -> float:
        """Add a key after its back-off; return the delay in seconds."""
        with self._lock:
            self._failures[key] = failures = self._failures.get(key, 0) + 1
        delay = self._retry.pause_seconds(failures)
        self.add_after(key, delay)
        return delay

    def cancel(self, key: K) -> None:
        """Cancel the delayed adds of a key, but not one that is ready."""
        with self._lock:
            self._due.pop(key, None)
            while self._delayed and self._due.get(self._delayed[0][2]) != self._delayed[0][:2]:
                heapq.heappop(self._delayed)

    def forget(self, key: K) -> None:
        """Reset the back-off of a key after a success."""
        with self._lock:
            self._failures.pop(key, None)

    def failure_count(self, key: K) -> int:
        """Return how often a key was rate limited since it was last forgotten."""
        with self._lock:
            return self._failures.get(key, 0)

    def get(self, timeout_seconds: float | None = None) -> K | None:
        """Return the next key, to be completed with `done`; None after the timeout or once the queue is shut down."""
        with self._lock:
            deadline = None
            try:
                while not self.is_shut_down:
                    if self._delayed and self._delayed[0][0] <= self._clock.monotonic():
                        self._promote()
                    if self._ready:
                        key = self._ready.popleft()
                        self._pending.discard(key)
                        self._processing.add(key)
                        return key
                    if timeout_seconds is not None:
                        now = self._clock.monotonic()
                        deadline = now + timeout_seconds if deadline is None else deadline
                        if now >= deadline:
                            return None
                    self._clock.wait(self._condition, self._patience(deadline))
                return None
            finally:
                # A notification wakes one waiter, which may leave with a key while it was the one that timed the
                # delayed
                # keys: it notifies the next one.
                if self._ready or self._delayed:
                    self._condition.notify()

    def done(self, key: K, *, succeeded: bool = False) -> float | None:
        """Mark a key from `get` as processed; if it was added in the meantime, it becomes ready again.

        Args:
            succeeded: Whether its failures are forgotten, as by `forget`.

        Returns:
            The value of `seconds_to_next`.
        """
        with self._lock:
            self._processing.discard(key)
            if succeeded and self._failures:
                self._failures.pop(key, None)
            if key in self._pending:
                self._ready.append(key)
                self._announce()
            return 0.0 if self._ready else self._patience(None)

    def shut_down(self) -> None:
        """Refuse further adds, drop waiting keys, and make every `get` return None. Idempotent."""
        with self._lock:
            self.is_shut_down = True
            self._ready.clear()
            self._pending.clear()
            self._delayed.clear()
            self._due.clear()
            self._condition.notify_all()

    def __len__(self) -> int:
        """Return the number of ready keys, without delayed ones."""
        with self._lock:
            self._promote()
            return len(self._ready)

    def seconds_to_next(self) -> float | None:
        """Return the seconds until a key is ready unless more are added: 0 for now, None for never."""
        with self._lock:
            return 0.0 if self._ready else self._patience(None)

    def _promote(self) -> None:
        """Make due delayed keys ready."""
        while self._delayed and self._delayed[0][0] <= self._clock.monotonic():
            moment, order, key = heapq.heappop(self._delayed)
            if self._due.get(key) == (moment, order):  # else it was replaced by an earlier one
                del self._due[key]
                if key not in self._pending:
                    self._pending.add(key)
                    if key not in self._processing:
                        self._ready.append(key)

    def _patience(self, deadline: float | None) -> float | None:
        """Return the seconds until the next delayed key is due; None to wait for an add."""
        if self._delayed and (deadline is None or self._delayed[0][0] < deadline):
            deadline = self._delayed[0][0]
        return None if deadline is None else max(deadline - self._clock.monotonic(), 0.0)
