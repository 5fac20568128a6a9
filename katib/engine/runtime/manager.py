"""Starts and stops informers and controllers in order, so that no controller works on an empty cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, Self

from katib.engine.runtime.objects import Kind
from katib.errors import UnavailableError

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
