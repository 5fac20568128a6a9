"""Calls under way: one per object, never waited for.

A slow service must not keep a worker. A reconcile that needs an answer starts the call and returns; the answer wakes
the controller, and the next reconcile finds it here. An answer stays until the reconcile that used it says so, so a
conflict between the answer and its write does not ask the service twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Any, Generic, TypeVar

from katib.engine.runtime.objects import Key
from katib.errors import UnavailableError

P = TypeVar("P", bound=Hashable)


@dataclass(frozen=True, slots=True)
class SeenCall(Generic[P]):
    """A call as it is at one moment.

    Attributes:
        purpose: What it is for.
        is_done: Whether it is over.
        answer: What was answered.
        error: Why nothing was.
    """

    purpose: P
    is_done: bool = False
    answer: Any = None
    error: BaseException | None = None


class PendingCalls(Generic[P]):
    """Calls by key. Safe to call from any thread; a key is used by one thread at a time, as reconcilers do.

    No lock is held while a call is started: what has to be prepared for one object delays no other.
    """

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._calls: dict[Key, tuple[P, Future[Any]]] = {}
        self._lock = Lock()

    def ask(self, key: Key, purpose: P, start: Callable[[], Future[Any]]) -> Future[Any]:
        """Return the call for this purpose, started now unless it is under way or answered.

        A finished call for another purpose is dropped; an unfinished one is returned in its place, for its end is the
        earliest moment at which the service can be asked again. Compare `purpose_of` before using the answer.
        """
        with self._lock:
            call = self._calls.get(key)
        if call is not None and (call[0] == purpose or not call[1].done()):
            return call[1]
        future = start()
        with self._lock:
            self._calls[key] = purpose, future
        future.add_done_callback(lambda _: self._wake(key))
        return future

    def find(self, key: Key) -> SeenCall[P] | None:
        """Return the call that is under way or answered; None when there is none."""
        with self._lock:
            call = self._calls.get(key)
        if call is None:
            return None
        purpose, future = call
        if not future.done():
            return SeenCall(purpose)
        error = error_of(future)
        return SeenCall(purpose, is_done=True, answer=None if error else future.result(), error=error)

    def purpose_of(self, key: Key) -> P | None:
        """Return what the call under way is for."""
        call = self.find(key)
        return None if call is None else call.purpose

    def finish(self, key: Key) -> None:
        """Say that the answer was used, or is not wanted any more."""
        with self._lock:
            call = self._calls.pop(key, None)
        if call is not None:
            call[1].cancel()

    def abandon(self, key: Key) -> None:
        """Want no answer any more. A call that runs goes on; the next one for this key comes after it."""
        with self._lock:
            call = self._calls.get(key)
        if call is not None:
            call[1].cancel()
            call[1].add_done_callback(lambda _: self.finish(key))


def then(first: Future[Any], follow: Callable[[Any], Future[Any]]) -> Future[Any]:
    """Return a future of the second call, which starts with the answer of the first; either error is its error."""
    result: Future[Any] = Future()

    def settle(error: BaseException | None, answer: Any = None) -> None:
        if result.set_running_or_notify_cancel():
            if error is not None:
                result.set_exception(error)
            else:
                result.set_result(answer)

    def finish(second: Future[Any]) -> None:
        error = error_of(second)
        settle(error, None if error is not None else second.result())

    def go_on(answered: Future[Any]) -> None:
        error = error_of(answered)
        if error is not None:
            settle(error)
            return
        try:
            follow(answered.result()).add_done_callback(finish)
        except Exception as failure:  # noqa: BLE001 - a future carries whatever starting the second call raised
            settle(failure)

    first.add_done_callback(go_on)
    return result


def mapped(first: Future[Any], make: Callable[[Any], Any]) -> Future[Any]:
    """Return a future of what a function makes of the answer of a call; the error of either is its error."""

    def made(answer: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(make(answer))
        return future

    return then(first, made)


def error_of(call: Future[Any]) -> BaseException | None:
    """Return the error of a call that is over; one that was cancelled under us may be made again."""
    return UnavailableError("the call was cancelled") if call.cancelled() else call.exception()
