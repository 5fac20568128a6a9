"""A thread that waits for the answers to calls, one at a time, and is kept for the next one.

gRPC starts a thread for each call that is not waited for, in the caller's time: a third of a millisecond,
several times that while other threads are at work. To hand a call to a thread that is there takes a tenth of it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

KEPT_SECONDS = 10.0
"""How long the thread waits for another call: there may be a thousand services that are asked once an hour."""

_END_SECONDS = 5.0
"""A call ends at once when its connection is closed."""

Call = Callable[[], None]
"""Waits for an answer and deals with it. Must not raise."""


class AnswerThread:
    """Runs calls one at a time. Safe to call from any thread.

    Args:
        name: Of the thread.
        kept_seconds: How long it waits for another call before it ends; the next call starts it again.
    """

    def __init__(self, name: str, kept_seconds: float = KEPT_SECONDS) -> None:
        self._name = name
        self._kept_seconds = kept_seconds
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._is_busy = False
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def take(self, call: Call) -> bool:
        """Schedule a call; return False, without the call, while another one is under way."""
        with self._lock:
            if self._is_busy or self._is_closed:
                return False
            self._is_busy = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._calls.put(call)
        return True

    def close(self) -> None:
        """End the thread; a call that is under way is waited for. Later calls are left alone. Closing twice is fine."""
        with self._lock:
            self._is_closed, thread = True, self._thread
        self._calls.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_END_SECONDS)

    def _run(self) -> None:
        """Make calls until the thread is closed, or none came for long."""
        while True:
            try:
                call = self._calls.get(timeout=self._kept_seconds)
            except queue.Empty:
                with self._lock:
                    if self._is_busy:  # one is on its way
                        continue
                    self._thread = None
                    return
            if call is None:
                return
            call()
            with self._lock:
                self._is_busy = False
