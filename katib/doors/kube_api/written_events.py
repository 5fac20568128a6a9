"""Events written by clients: objects of the store beside the log of the controllers' events.

Differs from other kinds: the revision of an event is the time of its last write in microseconds, as in the log, so that
one list and one watch cover both. An event expires an hour after its last write, as in an API server, and a watch does
not show the expiry.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from katib.doors.kube_api.derived import version_at
from katib.doors.kube_api.resources import EVENT
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.engine.stores.semantics import describe
from katib.errors import ConflictError, NotFoundError

Json = dict[str, Any]

KEPT = timedelta(hours=1)
_CLEANING_SECONDS = 60.0
_WRITTEN = "katib.kubeflow.org/written-at"
"""Annotation of a stored event: the revision that clients see."""


class WrittenEvents:
    """Reads and writes events in a store. Thread-safe."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._last: int | None = None
        self._cleaned_at = float("-inf")

    def list(self, namespace: str | None, after: int = 0) -> list[Object]:
        """Return the events written after a revision, in the order of their writes."""
        if self._last is not None and after >= self._last:
            return []
        events = [_shown(obj) for obj in self._store.list(EVENT, namespace).items]
        found = [event for event in events if _version(event) > after]
        return sorted(found, key=_version)

    def get(self, key: Key) -> Object:
        """Return an event.

        Raises:
            NotFoundError: There is none.
        """
        return _shown(self._store.get(EVENT, key))

    def create(self, event: Json) -> Object:
        """Store a new event. Raises as `ObjectStore.create`."""
        self._remove_old()
        return _shown(self._store.create(self._marked(event)))

    def update(self, event: Json) -> Object:
        """Replace an event.

        Raises:
            ConflictError: It changed since it was read.
            NotFoundError: It is gone, or is in the log.
        """
        stored = self._store.get(EVENT, Key.of(event))
        if event["metadata"]["resourceVersion"] != _shown(stored)["metadata"]["resourceVersion"]:
            raise ConflictError(f"{describe(event)}: it changed since it was read")
        revision = stored["metadata"]["resourceVersion"]
        return _shown(self._store.update(self._marked(event, resourceVersion=revision)))

    def _marked(self, event: Json, **metadata: str) -> Json:
        with self._lock:
            self._last = max(version_at(datetime.now(UTC)), (self._last or 0) + 1)
            annotations = {**(event["metadata"].get("annotations") or {}), _WRITTEN: str(self._last)}
        return {**event, "metadata": {**event["metadata"], **metadata, "annotations": annotations}}

    def _remove_old(self) -> None:
        with self._lock:
            if time.monotonic() < self._cleaned_at + _CLEANING_SECONDS:
                return
            self._cleaned_at = time.monotonic()
        oldest = version_at(datetime.now(UTC) - KEPT)
        for event in map(_shown, self._store.list(EVENT).items):
            if _version(event) < oldest:
                with suppress(NotFoundError):
                    self._store.delete(EVENT, Key.of(event), uid=event["metadata"]["uid"])


def _shown(stored: Object) -> Json:
    """Return an event as clients see it."""
    metadata = dict(stored["metadata"])
    annotations = dict(metadata.pop("annotations", {}))
    metadata["resourceVersion"] = annotations.pop(_WRITTEN)
    return {**stored, "metadata": {**metadata, **({"annotations": annotations} if annotations else {})}}


def _version(event: Object) -> int:
    return int(event["metadata"]["resourceVersion"])
