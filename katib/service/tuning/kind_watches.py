"""Several kinds of a store watched as one stream that survives lost connections."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from typing import Self

from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Kind, ObjectStore, Watch, WatchEvent
from katib.errors import UnavailableError

RECONNECT_SECONDS = 60.0
"""How long a store may be away before the stream fails: longer than an API server takes to restart."""

_PAUSE_SECONDS = 1.0

_GATHER_SECONDS = 0.05
"""How long changes are gathered after those before were passed on: each time a reader is woken, whoever writes to the
same store waits for the interpreter, and a person sees no difference."""


class KindWatches:
    """The changes of several kinds, merged: those of one kind in order, the kinds not in step. One reader thread.

    A lost connection is opened again behind the last change seen. A change after a quiet moment is passed on at once;
    of a stream of changes a reader gets several at a time.

    Args:
        since: From which revision on, by kind. Revisions of different kinds are never compared.
    """

    def __init__(self, store: ObjectStore, since: Mapping[Kind, str], clock: Clock) -> None:
        self.revisions = dict(since)
        """Revision of the last change returned, by kind."""
        self._store = store
        self._clock = clock
        self._merged: queue.SimpleQueue[tuple[Kind, str, WatchEvent] | Exception] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._open: dict[Kind, Watch] = {}
        self._closed = False

    def __enter__(self) -> Self:
        for kind, revision in self.revisions.items():
            threading.Thread(target=self._run, args=(kind, revision), name="changes", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            watches = list(self._open.values())
        for watch in watches:
            watch.close()

    def next(self, timeout_seconds: float | None = None) -> WatchEvent | None:
        """Return the next change, None when the time is up.

        Raises:
            ExpiredError: A revision is no longer kept.
            UnavailableError: The store was away for too long.
            ForbiddenError: A kind may not be watched.
        """
        try:
            event = self._merged.get(timeout=timeout_seconds)
        except queue.Empty:
            return None
        if isinstance(event, Exception):
            raise event
        kind, revision, change = event
        self.revisions[kind] = revision
        return change

    def _run(self, kind: Kind, revision: str) -> None:
        """Move the changes of one kind into the merged stream until it is closed."""
        lost_at: float | None = None
        while not self._closed:
            try:
                with self._store.watch(kind, revision) as watch:
                    lost_at = None
                    self._keep(kind, watch)
                    while (event := watch.next()) is not None:
                        while event is not None:
                            revision = event.resource_version
                            self._merged.put((kind, revision, event))
                            event = watch.next(0.0)
                        self._pause(_GATHER_SECONDS)
            except UnavailableError as error:
                now = self._clock.monotonic()
                lost_at = now if lost_at is None else lost_at
                if now - lost_at > RECONNECT_SECONDS:
                    self._merged.put(error)
                    return
                self._pause(_PAUSE_SECONDS)
            except Exception as error:  # noqa: BLE001 - it is raised where the stream is read
                self._merged.put(error)
                return

    def _keep(self, kind: Kind, watch: Watch) -> None:
        """Remember an open watch, so that closing the stream wakes its reader."""
        with self._changed:
            self._open[kind] = watch
            closed = self._closed
        if closed:
            watch.close()

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if not self._closed:
                self._clock.wait(self._changed, seconds)
