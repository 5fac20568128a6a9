"""Recent changes and their watches. In memory: the process that writes is the process that watches.

A ring keeps the newest changes, so that a watch can start slightly in the past; a client with an older revision has to
list again. Delivery is a hand-over between threads without polling, about 20 microseconds.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Self

from katib.engine.runtime.objects import EventType, Kind, Object, WatchEvent
from katib.errors import ExpiredError

KEPT_CHANGES = 1_000
"""An informer watches from its recent list. More would only use memory: a change holds its object."""

LONGEST_BACKLOG = 20_000
"""Limit of a watch's unread changes; listing again is cheaper from there on."""


class ChangeHistory:
    """The newest changes of all kinds, and the open watches. Thread-safe.

    Args:
        revision: Revision of the store at the start; earlier changes cannot be watched.
        kept_changes: Number of changes kept for watches that start in the past.
        longest_backlog: Number of changes a watch may leave unread.
    """

    def __init__(
        self, revision: int, *, kept_changes: int = KEPT_CHANGES, longest_backlog: int = LONGEST_BACKLOG
    ) -> None:
        self._lock = threading.Lock()
        self._changes: deque[tuple[int, Kind, WatchEvent]] = deque()
        self._begin = revision
        self._dropped: dict[Kind, int] = {}  # revision of the newest dropped change
        self._kept_changes = kept_changes
        self._longest_backlog = longest_backlog
        self._watches: dict[Kind, list[StoreWatch]] = {}

    def publish(self, events: Sequence[WatchEvent]) -> None:
        """Deliver committed changes to the watches of their kinds. The caller publishes in order of revision."""
        with self._lock:
            for event in events:
                obj = event.object
                kind, revision = Kind(obj["apiVersion"], obj["kind"]), int(obj["metadata"]["resourceVersion"])
                self._changes.append((revision, kind, event))
                if len(self._changes) > self._kept_changes:
                    dropped, dropped_kind, _ = self._changes.popleft()
                    self._dropped[dropped_kind] = dropped
                for watch in self._watches.get(kind, ()):
                    watch.offer(revision, event)

    def watch(self, kind: Kind, since: str) -> StoreWatch:
        """Return a stream of the changes of a kind after a revision.

        Raises:
            ExpiredError: That revision is no longer kept, or was never issued.
        """
        if not (since.isascii() and since.isdigit()):
            raise ExpiredError(f"watch of {kind.kind}: {since!r} is no revision of this store; list again")
        revision = int(since)
        with self._lock:
            oldest = self._dropped.get(kind, self._begin)  # changes of other kinds do not expire it
            if revision < oldest:
                raise ExpiredError(
                    f"watch of {kind.kind}: revision {revision} is older than {oldest}, the oldest; list again"
                )
            watch = StoreWatch(self, kind, revision, self._longest_backlog)
            for changed, changed_kind, event in self._changes:
                if changed_kind == kind:
                    watch.offer(changed, event)
            self._watches.setdefault(kind, []).append(watch)
        return watch

    def forget(self, watch: StoreWatch) -> None:
        with self._lock:
            watches = self._watches.get(watch.kind, [])
            if watch in watches:
                watches.remove(watch)


class StoreWatch:
    """A watch fed by a history: `katib.engine.runtime.objects.Watch`."""

    def __init__(self, history: ChangeHistory, kind: Kind, since: int, longest_backlog: int) -> None:
        self.kind = kind
        self._history = history
        self._since = since
        self._longest_backlog = longest_backlog
        self._queue: queue.SimpleQueue[WatchEvent | None] = (
            queue.SimpleQueue()
        )  # None wakes the reader of a closed watch
        self._shown: deque[WatchEvent] = deque()
        self._overrun = False
        self._closed = False
        self._on_change: Callable[[], None] | None = None

    def tell(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        on_change()

    def offer(self, revision: int, event: WatchEvent) -> None:
        """Deliver a change, unless the reader has seen it or is too far behind. Called under the history's lock."""
        if revision <= self._since or self._overrun:
            return
        if self._queue.qsize() >= self._longest_backlog:
            self._overrun = True
        else:
            self._queue.put(event)
        if self._on_change is not None:
            self._on_change()

    def show(self, objects: Iterable[Object]) -> None:
        """Deliver objects that were hidden from the reader so far, before all unread changes."""
        self._shown.extend(WatchEvent(EventType.ADDED, obj) for obj in objects)
        if self._on_change is not None:
            self._on_change()

    def next(self, timeout_seconds: float | None = None) -> WatchEvent | None:
        if self._closed:
            return None
        if self._shown:
            return self._shown.popleft()
        if self._overrun and self._queue.empty():
            raise self._behind()
        try:
            return self._queue.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    def take(self) -> list[WatchEvent]:
        if self._closed:
            return []
        taken: list[WatchEvent] = []
        while self._shown:
            taken.append(self._shown.popleft())
        with suppress(queue.Empty):
            while (event := self._queue.get_nowait()) is not None:
                taken.append(event)
        if self._overrun and not taken:
            raise self._behind()
        return taken

    def _behind(self) -> ExpiredError:
        return ExpiredError(f"watch of {self.kind.kind}: more than {self._longest_backlog} changes behind; list again")

    def close(self) -> None:
        self._closed = True
        self._history.forget(self)
        self._queue.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
