"""Skips reconciles of objects whose cached copy precedes our own last write.

After a write, the informer shows the old object until the write's event arrives. Deciding on it again is harmless,
since the write would conflict, but costs needless calls. The event follows and enqueues the object, so a stale read is
skipped.
"""

from __future__ import annotations

from katib.engine.runtime.objects import Object
from katib.model.types import Resource


class Freshness:
    """The revision of each object that our last write replaced. Thread-safe."""

    def __init__(self) -> None:
        self._replaced: dict[str, str] = {}

    def is_stale(self, obj: Resource) -> bool:
        """Return whether this object precedes our last write."""
        replaced = self._replaced.get(obj.metadata.uid)
        if replaced is None or replaced == obj.metadata.resource_version:
            return replaced is not None
        self._replaced.pop(obj.metadata.uid, None)  # the cache has moved on, and never goes back
        return False

    def wrote(self, obj: Resource, stored: Object) -> None:
        """Note that a write replaced this revision, unless it changed nothing: then no event follows."""
        version = obj.metadata.resource_version
        if stored["metadata"]["resourceVersion"] != version:
            self._replaced[obj.metadata.uid] = version

    def forget(self, uid: str) -> None:
        self._replaced.pop(uid, None)
