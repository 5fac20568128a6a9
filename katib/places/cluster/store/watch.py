"""A watch that outlives its connections.

A thread reads the response of the API server into a short queue, so that the reader can wait with or without a deadline
and is woken by `close` at once. When the server ends the response, as it does every few minutes, or the connection
breaks, the thread continues from the last known revision, which bookmarks keep recent. A slow reader stops the thread,
and with it the server's sending; if the server forgets the missed revisions, the watch expires.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Self

from katib.engine.runtime.objects import EventType, Kind, WatchEvent
from katib.errors import KatibError, UnavailableError
from katib.places.cluster.client import ApiConnection, ResponseStream, request_info, watch_error_of
from katib.places.cluster.store import objects

LONGEST_QUEUE = 1_000
LARGEST_QUEUE_BYTES = 2_000_000
"""Size of the text; decoded, it is about five times as large."""
LIFE_SECONDS = (120, 180)
"""Requested duration of one response, drawn anew each time, so that many watches do not end together."""
SHORTEST_LIFE_SECONDS = 1.0
SILENCE_SECONDS = 15.0
"""Additional silence after which the connection counts as dead."""

_log = logging.getLogger(__name__)


class KubernetesWatch:
    """Changes of one kind: `katib.engine.runtime.objects.Watch`.

    The constructor sends the first request and raises its errors.
    """

    def __init__(self, connection: ApiConnection, kind: Kind, path: str, query: Mapping[str, str], since: str) -> None:
        self._connection = connection
        self._kind = kind
        self._path = path
        self._query = query
        self._revision = since  # the reading thread's
        self._changed = threading.Condition()  # guards what follows
        self._queue: deque[tuple[WatchEvent, int]] = deque()
        self._queued_bytes = 0
        self._error: KatibError | None = None
        self._closed = False
        self._stream = self._open()
        self._thread = threading.Thread(target=self._run, name=f"watch-{kind.kind}", daemon=True)
        self._thread.start()

    def next(self, timeout_seconds: float | None = None) -> WatchEvent | None:
        with self._changed:
            if not self._queue:
                self._changed.wait_for(lambda: self._queue or self._error or self._closed, timeout_seconds)
            if self._closed:
                return None
            if self._queue:
                was_full = self._is_full()
                event, size = self._queue.popleft()
                self._queued_bytes -= size
                if was_full:
                    self._changed.notify_all()
                return event
            if self._error is not None:
                raise self._error
            return None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._queued_bytes = 0
            self._changed.notify_all()
            stream = self._stream
        stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        try:
            while not self._closed:
                opened = time.monotonic()
                self._read()
                self._reopen(opened)
        except KatibError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - the reader must not wait forever, whatever the error
            self._fail(UnavailableError(f"{self._kind.kind}: the watch broke, {error!r}; it is opened again"))

    def _read(self) -> None:
        """Queue the changes of one response until it ends or breaks."""
        try:
            for line in self._stream.lines():
                if line:
                    self._take(json.loads(line), len(line))
        except (UnavailableError, json.JSONDecodeError) as error:  # a line may be cut off in the middle
            _log.debug("Watch broke off: %s", error, extra={"kind": self._kind.kind})
        finally:
            self._stream.close()

    def _take(self, event: dict[str, Any], size: int) -> None:
        kind, obj = event["type"], event["object"]
        if kind == "ERROR":
            raise watch_error_of(obj, request_info("GET", self._path, {"watch": "true"}))
        self._revision = obj["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return
        change = WatchEvent(EventType(kind), objects.shown(obj, self._kind))
        with self._changed:
            self._changed.wait_for(lambda: not self._is_full() or self._closed)
            if not self._closed:
                self._queue.append((change, size))
                self._queued_bytes += size
                self._changed.notify_all()

    def _is_full(self) -> bool:
        return len(self._queue) >= LONGEST_QUEUE or self._queued_bytes >= LARGEST_QUEUE_BYTES

    def _open(self) -> ResponseStream:
        life = random.randint(*LIFE_SECONDS)
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._revision,
            "timeoutSeconds": str(life),
        }
        return self._connection.stream(self._path, query=query, read_timeout_seconds=life + SILENCE_SECONDS)

    def _reopen(self, opened: float) -> None:
        """Continue the watch from the last revision, after a pause if the server ended the response too early."""
        early = opened + SHORTEST_LIFE_SECONDS - time.monotonic()
        with self._changed:
            if early > 0:
                self._changed.wait_for(lambda: self._closed, early)
            if self._closed:
                return
        self._take_over(self._open())

    def _take_over(self, stream: ResponseStream) -> None:
        with self._changed:
            self._stream = stream
            if self._closed:  # meanwhile
                stream.close()

    def _fail(self, error: KatibError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()
