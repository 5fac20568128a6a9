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
from typing import Any

from katib.errors import UnavailableError
from katib.runtime.objects import Key


@dataclass(frozen=True, slots=True)
class _Call:
    purpose: Hashable
    future: Future[Any]


class PendingCalls:
    """Calls by key. Safe to call from any thread."""

    def __init__(self, wake: Callable[[Key], None]) -> None:
        self._wake = wake
        self._calls: dict[Key, _Call] = {}
        self._lock = Lock()

    def ask(self, key: Key, purpose: Hashable, start: Callable[[], Future[Any]]) -> Future[Any]:
        """Return the call for this purpose, started now unless it is under way or answered.

        A finished call for another purpose is dropped; an unfinished one is returned in its place, for its end is the
        earliest moment at which the service can be asked again. Compare `purpose_of` before using the answer.
        """
        with self._lock:
            call = self._calls.get(key)
            if call is None or (call.purpose != purpose and call.future.done()):
                call = _Call(purpose, start())
                self._calls[key] = call
                fresh = True
            else:
                fresh = False
        if fresh:
            call.future.add_done_callback(lambda _: self._wake(key))
        return call.future

    def purpose_of(self, key: Key) -> Hashable | None:
        """Return what the call under way is for."""
        with self._lock:
            call = self._calls.get(key)
        return None if call is None else call.purpose

    def finish(self, key: Key) -> None:
        """Say that the answer was used, or that nobody wants it any more."""
        with self._lock:
            call = self._calls.pop(key, None)
        if call is not None:
            call.future.cancel()


def then(first: Future[Any], follow: Callable[[Any], Future[Any]]) -> Future[Any]:
    """Return a future of the second call, which starts with the answer of the first; either error is its error."""
    result: Future[Any] = Future()

    def finish(second: Future[Any]) -> None:
        _copy(second, result)

    def go_on(answered: Future[Any]) -> None:
        error = _error_of(answered)
        if error is not None:
            _fail(result, error)
            return
        try:
            follow(answered.result()).add_done_callback(finish)
        except Exception as failure:  # noqa: BLE001 - a future carries whatever starting the second call raised
            _fail(result, failure)

    first.add_done_callback(go_on)
    return result


def _error_of(call: Future[Any]) -> BaseException | None:
    """Return the error of a call that is over; one that was cancelled under us may be made again."""
    return UnavailableError("the call was cancelled") if call.cancelled() else call.exception()


def _copy(source: Future[Any], target: Future[Any]) -> None:
    error = _error_of(source)
    if error is not None:
        _fail(target, error)
    elif target.set_running_or_notify_cancel():
        target.set_result(source.result())


def _fail(target: Future[Any], error: BaseException) -> None:
    if target.set_running_or_notify_cancel():
        target.set_exception(error)
