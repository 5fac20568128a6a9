"""The object store in memory: for tests, notebooks and trying things out. Nothing outlives the process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from katib.errors import NotFoundError
from katib.runtime.clock import Clock, SystemClock
from katib.runtime.objects import Key, Kind, Object, ObjectList, Watch, WatchEvent
from katib.stores import semantics
from katib.stores.history import KEPT_CHANGES, LONGEST_BACKLOG, History
from katib.stores.transaction import Transaction

R = TypeVar("R")


class MemoryRows:
    """Objects in dictionaries, which keep the order of creation."""

    def __init__(self) -> None:
        self.revision = 0
        self._objects: dict[Kind, dict[Key, Object]] = {}
        self._uids: dict[str, tuple[Kind, Key]] = {}
        self._owned: dict[str, dict[str, None]] = {}

    def next_revision(self) -> int:
        """Count up."""
        self.revision += 1
        return self.revision

    def find(self, kind: Kind, key: Key) -> Object | None:
        """Look an object up."""
        return self._objects.get(kind, {}).get(key)

    def has_uid(self, uid: str) -> bool:
        """Look a uid up."""
        return uid in self._uids

    def owned_by(self, uid: str) -> list[Object]:
        """Look dependents up."""
        places = [self._uids[owned] for owned in self._owned.get(uid, ())]
        return [self._objects[kind][key] for kind, key in places]

    def insert(self, obj: Object) -> None:
        """Add to all dictionaries."""
        kind, key, uid = Kind.of(obj), Key.of(obj), obj["metadata"]["uid"]
        self._objects.setdefault(kind, {})[key] = obj
        self._uids[uid] = (kind, key)
        for owner in semantics.owner_uids(obj):
            self._owned.setdefault(owner, {})[uid] = None

    def replace(self, old: Object, new: Object) -> None:
        """Keep the place, renew the owners."""
        self._disown(old)
        self.insert(new)

    def remove(self, obj: Object) -> None:
        """Take out of all dictionaries."""
        self._disown(obj)
        del self._objects[Kind.of(obj)][Key.of(obj)]
        del self._uids[obj["metadata"]["uid"]]

    def all(self, kind: Kind) -> Collection[Object]:
        """Return the objects of a kind in order of creation."""
        return self._objects.get(kind, {}).values()

    def _disown(self, obj: Object) -> None:
        for owner in semantics.owner_uids(obj):
            owned = self._owned[owner]
            del owned[obj["metadata"]["uid"]]
            if not owned:
                del self._owned[owner]


class MemoryStore:
    """An object store in memory: `katib.runtime.objects.ObjectStore`.

    Differs from the SQL store in speed and life time only; a list by label or owner looks at all objects of the kind.

    Args:
        status_kinds: Kinds with a status subresource. For all others `status` is a field like any other.
        clock: Stamps creations and deletions.
        kept_changes: How many changes a watch may start in the past.
        longest_backlog: How many changes a watch may leave unread before it expires.
    """

    def __init__(
        self,
        status_kinds: Collection[Kind],
        *,
        clock: Clock | None = None,
        kept_changes: int = KEPT_CHANGES,
        longest_backlog: int = LONGEST_BACKLOG,
    ) -> None:
        self._status_kinds = frozenset(status_kinds)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._rows = MemoryRows()
        self._history = History(0, kept_changes=kept_changes, longest_backlog=longest_backlog)

    def get(self, kind: Kind, key: Key) -> Object:
        """Return an object."""
        with self._lock:
            obj = self._rows.find(kind, key)
        if obj is None:
            raise NotFoundError(f"{kind.kind} {key}: not found")
        return obj

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        owner_uid: str | None = None,
    ) -> ObjectList:
        """Return the objects of a kind."""

        def wanted(obj: Object) -> bool:
            return (
                (namespace is None or Key.of(obj).namespace == namespace)
                and (not labels or labels.items() <= semantics.labels_of(obj).items())
                and (owner_uid is None or owner_uid in semantics.owner_uids(obj))
            )

        with self._lock:
            return ObjectList(tuple(filter(wanted, self._rows.all(kind))), str(self._rows.revision))

    def create(self, obj: Object) -> Object:
        """Store a new object."""
        given = semantics.isolated(obj)
        return self._write(lambda transaction: transaction.create(given))

    def update(self, obj: Object) -> Object:
        """Replace everything but the status."""
        given = semantics.isolated(obj)
        return self._write(lambda transaction: transaction.update(given))

    def update_status(self, obj: Object) -> Object:
        """Replace the status."""
        given = semantics.isolated(obj)
        return self._write(lambda transaction: transaction.update_status(given))

    def delete(self, kind: Kind, key: Key, *, uid: str | None = None) -> None:
        """Delete an object and what it owns."""
        self._write(lambda transaction: transaction.delete(kind, key, uid))

    def watch(self, kind: Kind, since: str) -> Watch:
        """Stream changes."""
        return self._history.watch(kind, since)

    def _write(self, action: Callable[[Transaction], R]) -> R:
        with self._lock:
            events: list[WatchEvent] = []
            result = action(Transaction(self._rows, self._status_kinds, self._clock.now(), events))
            self._history.publish(events)
            return result
