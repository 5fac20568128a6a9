"""Asynchronous calls: one per object, never awaited.

A slow service must not block a worker. A reconcile that needs an answer starts the call and returns; the answer
enqueues the object, and the next reconcile finds it here. An answer stays until `finish`, so a conflict between the
answer and its write does not repeat the question.
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
    """Snapshot of a call."""

    purpose: P
    is_done: bool = False
    answer: Any = None
    error: BaseException | None = None


class PendingCalls(Generic[P]):
    """Calls by key. Thread-safe; each key is used by one thread at a time, as in reconcilers.

    No lock is held while a call starts, so the preparation for one object delays no other.
    """

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._calls: dict[Key, tuple[P, Future[Any]]] = {}
        self._lock = Lock()

    def ask(self, key: Key, purpose: P, start: Callable[[], Future[Any]]) -> Future[Any]:
        """Return the call for this purpose, starting it unless it is pending or answered.

        A finished call for another purpose is dropped; an unfinished one is returned in its place, since its end is the
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
        """Return the pending or answered call; None if there is none."""
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
        call = self.find(key)
        return None if call is None else call.purpose

    def finish(self, key: Key) -> None:
        """Drop the call; its answer was used or is no longer needed."""
        with self._lock:
            call = self._calls.pop(key, None)
        if call is not None:
            call[1].cancel()

    def abandon(self, key: Key) -> None:
        """Discard the answer. A running call continues; the next call for this key starts after it."""
        with self._lock:
            call = self._calls.get(key)
        if call is not None:
            call[1].cancel()
            call[1].add_done_callback(lambda _: self.finish(key))


def then(first: Future[Any], follow: Callable[[Any], Future[Any]]) -> Future[Any]:
    """Return a future of the second call, which starts with the answer of the first; an error of either is its."""
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
    """Return a future of the call's answer passed through a function; an error of either is its."""

    def made(answer: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(make(answer))
        return future

    return then(first, made)


def error_of(call: Future[Any]) -> BaseException | None:
    """Return the error of a completed call; a cancelled one may be retried."""
    return UnavailableError("the call was cancelled") if call.cancelled() else call.exception()
