"""A store that takes writes only while we lead: a controller that was frozen must not act on what it knew before."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from katib.errors import UnavailableError
from katib.runtime.objects import Key, Kind, Object, ObjectList, ObjectStore, Watch


class FencedStore:
    """Fits `ObjectStore`. Reads pass; writes raise UnavailableError while `may_write` says no."""

    def __init__(self, store: ObjectStore, may_write: Callable[[], bool]) -> None:
        self._store = store
        self._may_write = may_write

    def get(self, kind: Kind, key: Key) -> Object:
        """Return an object."""
        return self._store.get(kind, key)

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        owner_uid: str | None = None,
    ) -> ObjectList:
        """Return the objects of a kind."""
        return self._store.list(kind, namespace, labels=labels, owner_uid=owner_uid)

    def watch(self, kind: Kind, since: str) -> Watch:
        """Stream the changes of a kind."""
        return self._store.watch(kind, since)

    def create(self, obj: Object) -> Object:
        """Store a new object."""
        self._require()
        return self._store.create(obj)

    def update(self, obj: Object) -> Object:
        """Replace everything but the status."""
        self._require()
        return self._store.update(obj)

    def update_status(self, obj: Object) -> Object:
        """Replace the status."""
        self._require()
        return self._store.update_status(obj)

    def delete(self, kind: Kind, key: Key, *, uid: str | None = None) -> None:
        """Delete an object."""
        self._require()
        self._store.delete(kind, key, uid=uid)

    def _require(self) -> None:
        if not self._may_write():
            raise UnavailableError("this controller does not lead any more; another one goes on")
