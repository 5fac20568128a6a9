"""One thread on which informers and controllers take turns.

Threads of one interpreter run one at a time anyway. If none of them waits for a network, a thread for each informer and
each worker only means that every change passes through a dozen of them, and each of these steps costs a wake-up and a
context switch. Here the next one simply continues.

Laws:

1. One turn at a time, so participants need no locks against each other.
2. No wake-up is lost: one during a turn causes another turn.
3. Readers (`first`) precede the participants that decide, so decisions use all available data; the others run in the
order in which they were woken.

A turn is short and never waits: long work has a thread of its own and wakes a participant when it is done.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from katib.engine.runtime.clock import Clock, SystemClock
from katib.errors import UnavailableError

_log = logging.getLogger(__name__)

T = TypeVar("T")

Turn = Callable[[], float | None]
"""Does a bounded piece of work; returns the seconds until the next turn, None to wait for a wake-up."""

_DUE = attrgetter("due")

_RETRY_SECONDS = 1.0
"""Pause after a turn that raised, which is a bug: without it, the turn might starve all others."""


class Participant:
    """A participant that takes turns. Thread-safe, also within turns."""

    __slots__ = ("_thread", "due", "first", "turn", "wake")

    def __init__(self, thread: SharedThread, turn: Turn, *, first: bool) -> None:
        self._thread = thread
        self.turn = turn
        self.first = first
        self.due = 0.0  # end of its pause, on the monotonic clock
        self.wake = partial(thread.wake, self)

    def leave(self) -> None:
        """Take no more turns, and wait for one in progress. Idempotent."""
        self._thread.leave(self)


class SharedThread:
    """Runs turns until it is stopped. Thread-safe, also within turns."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()  # used directly if no thread waits: twice as fast as through the condition
        self._condition = threading.Condition(self._lock)
        self._reading: dict[Participant, None] = {}  # woken, in order
        self._deciding: dict[Participant, None] = {}
        self._pausing: set[Participant] = set()
        self._next_due = math.inf  # no pause ends before
        self._current: Participant | None = None
        self._calls: set[Future[Any]] = set()  # of other threads, not begun
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the current turn. Idempotent."""
        with self._lock:
            self._stopping = True
            self._condition.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        for call in tuple(self._calls):
            call.cancel()

    def participant(self, turn: Turn, *, first: bool = False) -> Participant:
        """Return a new participant, which takes its first turn once it is woken."""
        return Participant(self, turn, first=first)

    def call(self, work: Callable[[], T]) -> T:
        """Call a short function between turns, and return its result.

        Raises:
            UnavailableError: The thread ends before the function is called.
        """
        if threading.current_thread() is self._thread:
            return work()
        call: Future[T] = Future()

        def turn() -> None:
            self._calls.discard(call)
            if call.set_running_or_notify_cancel():
                try:
                    call.set_result(work())
                except BaseException as error:  # noqa: BLE001 - raised in the waiting caller
                    call.set_exception(error)

        with self._lock:
            if self._stopping:
                call.cancel()
            else:
                self._calls.add(call)
        self.participant(turn).wake()
        try:
            return call.result()
        except CancelledError:
            raise UnavailableError("the controllers are being stopped; try again when they are started") from None

    def leave(self, participant: Participant) -> None:
        with self._lock:
            participant.turn = _no_turn
            self._forget(participant)
            if threading.current_thread() is not self._thread:
                while self._current is participant:
                    self._condition.wait()

    def wake(self, participant: Participant) -> None:
        """Give a participant a turn, after those that were woken before it."""
        with self._lock:
            woken = self._reading if participant.first else self._deciding
            if participant not in woken:
                woken[participant] = None
                if self._current is None:  # otherwise the thread checks again after its current turn
                    self._condition.notify()

    def _run(self) -> None:
        pause: float | None = None
        while (participant := self._next(pause)) is not None:
            try:
                pause = participant.turn()
            except Exception:  # noqa: BLE001 - a bug of one participant must not end the turns of the others
                _log.exception("Turn failed", extra={"turn": repr(participant.turn)})
                pause = _RETRY_SECONDS

    def _next(self, pause: float | None) -> Participant | None:
        """End the current turn, and return the next participant; None if there are no more turns."""
        with self._lock:
            current, self._current = self._current, None
            if current is None:
                pass
            elif current.turn is _no_turn:
                self._forget(current)
                self._condition.notify_all()
            elif pause == 0.0:
                (self._reading if current.first else self._deciding).setdefault(current)
            elif pause is not None:
                current.due = self._clock.monotonic() + pause
                self._pausing.add(current)
                self._next_due = min(self._next_due, current.due)
            while not self._stopping:
                if self._pausing and self._next_due <= (now := self._clock.monotonic()):
                    for participant in tuple(self._pausing):
                        if participant.due <= now:
                            self._pausing.discard(participant)
                            (self._reading if participant.first else self._deciding).setdefault(participant)
                    self._next_due = min(map(_DUE, self._pausing), default=math.inf)
                woken = self._reading or self._deciding
                if woken:
                    self._current = next(iter(woken))
                    del woken[self._current]
                    self._pausing.discard(self._current)
                    return self._current
                patience = self._next_due - self._clock.monotonic() if self._pausing else None
                self._clock.wait(self._condition, patience)
            return None

    def _forget(self, participant: Participant) -> None:
        self._reading.pop(participant, None)
        self._deciding.pop(participant, None)
        self._pausing.discard(participant)


def _no_turn() -> float | None:
    """Do nothing: a participant that left takes no more turns."""
    return None
