"""Skips work on objects that we ourselves already changed.

After a write, the informer shows the old object until the event of the write arrives. Deciding on it again would be
harmless, since the write would conflict, but it would ask services and clocks for nothing. The event is on its way and
wakes the controller, so a stale read is simply left alone.
"""

from __future__ import annotations

from katib.engine.runtime.objects import Object
from katib.model.types import Resource


class Freshness:
    """Remembers, for each object, the revision that our last write replaced. Safe to call from any thread."""

    def __init__(self) -> None:
        self._replaced: dict[str, str] = {}

    def is_stale(self, obj: Resource) -> bool:
        """Return whether this is the object as it was before our last write."""
        replaced = self._replaced.get(obj.metadata.uid)
        if replaced is None or replaced == obj.metadata.resource_version:
            return replaced is not None
        self._replaced.pop(obj.metadata.uid, None)  # the cache has moved on, and never goes back
        return False

    def wrote(self, obj: Resource, stored: Object) -> None:
        """Note that a write replaced this revision, unless it changed nothing: then no event follows it."""
        version = obj.metadata.resource_version
        if stored["metadata"]["resourceVersion"] != version:
            self._replaced[obj.metadata.uid] = version

    def forget(self, uid: str) -> None:
        """Forget an object that is gone."""
        self._replaced.pop(uid, None)
