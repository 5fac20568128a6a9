"""One thread for the pipes, exits and timers of all local pods.

Everything given to the loop runs on its thread, one call at a time, so its objects need no locks. A call must
return soon: reads are bounded, and whatever may wait (stores, metrics) happens elsewhere.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import os
import selectors
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from katib.engine.runtime.clock import Clock, SystemClock

Call = Callable[[], object]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Timer:
    """A call that is planned. `cancel` from the loop's thread."""

    call: Call | None

    def cancel(self) -> None:
        """Forget the call; fine when it was made already."""
        self.call = None


class Loop:
    """Selector, timers and a queue of calls. Only `call_soon`, `start` and `stop` may be used from other threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._selector = selectors.DefaultSelector()
        self._calls: deque[Call] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self.watch(self._wake_read, partial(os.read, self._wake_read, 4096))
        self._stopping = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="local-pods", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the calls that are queued now. Calls made later are dropped."""
        self.call_soon(self._finish)
        if self._thread.ident is not None:
            self._thread.join()
        with self._closing:
            self._stopping = True
            self._selector.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def call_soon(self, call: Call) -> None:
        """Make a call on the loop's thread, after those that are queued already."""
        self._calls.append(call)
        with self._closing:
            if not self._stopping:
                with contextlib.suppress(BlockingIOError):  # the pipe is full of wake-ups: it will wake
                    os.write(self._wake_write, b"\0")

    def monotonic(self) -> float:
        """Return the time of its timers."""
        return self._clock.monotonic()

    def call_later(self, seconds: float, call: Call) -> Timer:
        timer = Timer(call)
        heapq.heappush(self._timers, (self._clock.monotonic() + seconds, next(self._order), timer))
        return timer

    def when_all(self, futures: Sequence[Future[Any]], then: Call) -> None:
        """Make a call once all futures are done, at once when they are. From the loop's thread."""
        for future in futures:
            if not future.done():
                future.add_done_callback(lambda _: self.call_soon(partial(self.when_all, futures, then)))
                return
        then()

    def watch(self, fd: int, readable: Call) -> None:
        """Have a function called whenever a descriptor is readable, once per turn of the loop."""
        self._selector.register(fd, selectors.EVENT_READ, readable)

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor; one that is not watched is fine."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(fd)

    def _finish(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        while not self._stopping:
            now = self._clock.monotonic()
            while self._timers and self._timers[0][0] <= now:
                timer = heapq.heappop(self._timers)[2]
                if timer.call is not None:
                    self._guarded(timer.call)
            patience = 0.0 if self._calls else None  # None: until something happens
            if self._timers and not self._calls:
                patience = max(0.0, self._timers[0][0] - self._clock.monotonic())
            for key, _ in self._selector.select(patience):
                self._guarded(key.data)
            for _ in range(len(self._calls)):
                self._guarded(self._calls.popleft())

    def _guarded(self, call: Call) -> None:
        """Make a call; a bug in one pod must not take the others along."""
        try:
            call()
        except Exception:  # noqa: BLE001 - whatever it is, the log gets it and the loop continues
            _log.exception("Call failed on the loop of local pods")
