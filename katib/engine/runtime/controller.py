"""The loop around a reconciler: take a key, reconcile it, schedule the next reconcile."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Protocol, Self

from katib.engine.runtime.objects import Key, Kind
from katib.engine.runtime.shared_thread import SharedThread
from katib.engine.runtime.work_queue import WorkQueue
from katib.errors import ConflictError, ForbiddenError, InvalidError, TerminalError, UnavailableError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """Result of a successful reconcile.

    Attributes:
        requeue_after_seconds: Delay until the next reconcile without a change; None for only on the next change.
    """

    requeue_after_seconds: float | None = None


DONE = ReconcileResult()
"""Nothing to do until the next change."""

_current: ContextVar[tuple[str, Key, int] | None] = ContextVar("reconcile", default=None)
"""Name of the controller, key and number of the reconcile; formatted only for a log record."""


def current_reconcile() -> Mapping[str, str]:
    """Return `controller`, `key` and `reconcile_id` of the current thread's reconcile; empty outside of one.

    For logs: records of a store or a connection can then be found by the id of the reconcile.
    """
    if (current := _current.get()) is None:
        return {}
    controller, key, number = current
    return {"controller": controller, "key": str(key), "reconcile_id": f"{controller}-{number}"}


Reconcile = Callable[[Key], ReconcileResult]
OnError = Callable[[Key, Exception], None]


def _ignore(_key: Key, _error: Exception) -> None:
    """Do nothing about an error beyond logging it."""


class Controller:
    """Workers that reconcile the keys of a queue.

    The reconciler's exception decides how to continue:

    - ConflictError: the cache was stale. Retried with back-off; neither logged nor reported.
    - UnavailableError, ForbiddenError: retried with back-off.
    - TerminalError, InvalidError: not retried until the object changes.
    - Any other is a bug: retried with back-off, logged with its traceback.

    Every failure is logged once, here, with `controller`, `key` and `reconcile_id` as extra fields of the record. Other
    records of a reconcile get them from `current_reconcile`.

    Args:
        reconcile: Moves one key a step closer to its spec. Called from several threads, never concurrently for one key.
        queue: Queue of the keys. Watchers of objects add to it; `stop` shuts it down.
        workers: Number of keys reconciled concurrently.
        thread: Shared thread on which keys are reconciled one at a time; the reconciler must not block then. None for
            own threads, one per worker.
        on_error: Called with every failure except conflicts, on the worker's thread.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        queue: WorkQueue[Key] | None = None,
        *,
        workers: int = 1,
        thread: SharedThread | None = None,
        on_error: OnError = _ignore,
    ) -> None:
        self.name = name
        self.queue: WorkQueue[Key] = WorkQueue() if queue is None else queue
        self._reconcile = reconcile
        self._on_error = on_error
        self._ids = itertools.count(1)
        self._participant = None if thread is None else thread.participant(partial(self.process_next, 0.0))
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            for number in range(workers if thread is None else 0)
        ]

    def start(self) -> None:
        if self._participant is not None:
            self.queue.tell(self._participant.wake)
            self._participant.wake()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let running reconciles finish, drop the rest, and wait for the workers to end."""
        self.queue.shut_down()
        if self._participant is not None:
            self._participant.leave()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _work(self) -> None:
        while not self.queue.is_shut_down:
            self.process_next()

    def process_next(self, timeout_seconds: float | None = None) -> float | None:
        """Reconcile one key on this thread, if one arrives in time; return the seconds until the queue has another."""
        key = self.queue.get(timeout_seconds)
        if key is None:
            return self.queue.seconds_to_next()
        outside = _current.set((self.name, key, next(self._ids)))
        succeeded = False
        try:
            result = self._reconcile(key)
            succeeded = True
            if result.requeue_after_seconds is not None:
                self.queue.add_after(key, result.requeue_after_seconds)
        except ConflictError:
            self.queue.add_rate_limited(key)
        except Exception as error:  # noqa: BLE001 - the loop outlives any reconciler; the log gets the traceback
            self._fail(key, error)
        finally:
            _current.reset(outside)
            next_seconds = self.queue.done(key, succeeded=succeeded)
        return next_seconds

    def _fail(self, key: Key, error: Exception) -> None:
        extra = current_reconcile()
        match error:
            case TerminalError() | InvalidError():
                self.queue.forget(key)
                _log.error("Reconcile failed for good: %s", error, extra=extra)
            case UnavailableError() | ForbiddenError():
                delay = self.queue.add_rate_limited(key)
                facts = {"retry_after_seconds": delay, "sentence": str(error)}
                _log.warning("Reconcile postponed: %s", error, extra={**extra, **facts})
            case _:
                delay = self.queue.add_rate_limited(key)
                _log.error("Reconcile failed", extra={**extra, "retry_after_seconds": delay}, exc_info=error)
        try:
            self._on_error(key, error)
        except Exception:  # noqa: BLE001 - a broken hook must not end the worker
            _log.exception("Error hook failed", extra=extra)


# Starts and stops informers and controllers in order, so that no controller works on an empty cache.

SYNC_TIMEOUT_SECONDS = 60.0
"""Two full waits for a locked database, or for a page of a list from a very busy server."""


class Startable(Protocol):
    """A component with threads of its own."""

    def start(self) -> None:
        """Start the threads and return."""

    def stop(self) -> None:
        """End the threads and wait for them. Idempotent, also if never started."""


class Syncing(Startable, Protocol):
    """A component that has to catch up before others may start: an informer."""

    kind: Kind

    def wait_for_sync(self, timeout_seconds: float | None = None) -> bool:
        """Return True once it has caught up, False after this time without progress."""


class Manager:
    """Informers and controllers, started and stopped together. Also a context manager.

    Args:
        informers: Started first, all at once; stopped last.
        controllers: Started when every informer has synced; stopped first, in reverse order.
        sync_timeout_seconds: How long an informer may be without progress.
    """

    def __init__(
        self,
        informers: Sequence[Syncing],
        controllers: Sequence[Startable],
        *,
        sync_timeout_seconds: float = SYNC_TIMEOUT_SECONDS,
    ) -> None:
        self._informers = tuple(informers)
        self._controllers = tuple(controllers)
        self._sync_timeout_seconds = sync_timeout_seconds

    def start(self) -> None:
        """Start everything; on failure stop what was started.

        Raises:
            UnavailableError: An informer did not sync in time.
        """
        try:
            for informer in self._informers:
                informer.start()
            for informer in self._informers:
                self._await(informer)
            for controller in self._controllers:
                controller.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything and wait for all threads to end."""
        for controller in reversed(self._controllers):
            controller.stop()
        for informer in reversed(self._informers):
            informer.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _await(self, informer: Syncing) -> None:
        if not informer.wait_for_sync(self._sync_timeout_seconds):
            raise UnavailableError(
                f"list of {informer.kind.kind}: no answer from the object store within "
                f"{self._sync_timeout_seconds:g} s; see the log for its cause"
            )
