"""Object store in memory, which passes the contract of stores."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from katib.engine.runtime.clock import Clock, SystemClock
from katib.engine.runtime.objects import Key, Kind, Object, ObjectList, WatchEvent
from katib.engine.runtime.search import NO_FACTS, FactsOf, SearchPage, SearchQuery, search_in
from katib.engine.stores import semantics
from katib.engine.stores.history import KEPT_CHANGES, LONGEST_BACKLOG, ChangeHistory
from katib.engine.stores.transaction import NO_DEFAULTS, TransactedStore, Transaction
from katib.errors import NotFoundError

PAGE_SIZE = 500
"""The objects are in memory anyway: the size only exercises readers' paging."""


class MemoryRows:
    """Objects in dictionaries, which keep the order of creation."""

    def __init__(self) -> None:
        self.revision = 0
        self._objects: dict[Kind, dict[Key, Object]] = {}
        self._uids: dict[str, tuple[Kind, Key]] = {}
        self._owned: dict[str, dict[str, None]] = {}
        self._ages: dict[str, str] = {}  # by uid: sort key for the order of creation

    def next_revision(self) -> int:
        self.revision += 1
        return self.revision

    def find(self, kind: Kind, key: Key) -> Object | None:
        return self._objects.get(kind, {}).get(key)

    def has_uid(self, uid: str) -> bool:
        return uid in self._uids

    def owned_by(self, uid: str) -> list[Object]:
        places = [self._uids[owned] for owned in self._owned.get(uid, ())]
        return [self._objects[kind][key] for kind, key in places]

    def insert(self, obj: Object) -> None:
        kind, key, uid = Kind.of(obj), Key.of(obj), obj["metadata"]["uid"]
        self._objects.setdefault(kind, {})[key] = obj
        self._uids[uid] = (kind, key)
        self._ages.setdefault(uid, f"{self.revision:016}")
        for owner in semantics.owner_uids(obj):
            self._owned.setdefault(owner, {})[uid] = None

    def replace(self, old: Object, new: Object) -> None:
        """Replace an object, keeping its position."""
        self._disown(old)
        self.insert(new)

    def remove(self, obj: Object) -> None:
        self._disown(obj)
        kind, key = Kind.of(obj), Key.of(obj)
        del self._objects[kind][key]
        del self._uids[obj["metadata"]["uid"]], self._ages[obj["metadata"]["uid"]]

    def all(self, kind: Kind) -> Collection[Object]:
        """Return the objects of a kind in order of creation."""
        return self._objects.get(kind, {}).values()

    def by_age(self, kind: Kind) -> Iterator[tuple[str, Object]]:
        """Yield the objects of a kind, each with its sort key for the order of creation."""
        return ((self._ages[obj["metadata"]["uid"]], obj) for obj in self.all(kind))

    def _disown(self, obj: Object) -> None:
        for owner in semantics.owner_uids(obj):
            owned = self._owned[owner]
            del owned[obj["metadata"]["uid"]]
            if not owned:
                del self._owned[owner]


class MemoryStore(TransactedStore):
    """An object store in memory: `katib.engine.runtime.objects.ObjectStore`.

    Differs from the SQL store in speed and lifetime only; a list by label or owner scans all objects of the kind.

    Args:
        status_kinds: Kinds with a status subresource. For all others `status` is a field like any other.
        uid_kinds: Kinds whose objects keep their given uid; all others get a new one.
        facts: Derives the facts for searches, which scan all objects of the kind, too.
        clock: Stamps creations and deletions.
        kept_changes: How many changes a watch may start in the past.
        longest_backlog: How many changes a watch may leave unread before it expires.
    """

    def __init__(
        self,
        status_kinds: Collection[Kind],
        *,
        uid_kinds: Collection[Kind] = (),
        facts: FactsOf = NO_FACTS,
        clock: Clock | None = None,
        kept_changes: int = KEPT_CHANGES,
        longest_backlog: int = LONGEST_BACKLOG,
    ) -> None:
        history = ChangeHistory(0, kept_changes=kept_changes, longest_backlog=longest_backlog)
        self._facts = facts
        self._lock = threading.Lock()
        self._rows = MemoryRows()
        super().__init__(status_kinds, uid_kinds, clock or SystemClock(), history, NO_DEFAULTS)

    def get(self, kind: Kind, key: Key) -> Object:
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
        def wanted(obj: Object) -> bool:
            return (
                (namespace is None or Key.of(obj).namespace == namespace)
                and (not labels or labels.items() <= (obj["metadata"].get("labels") or {}).items())
                and (owner_uid is None or owner_uid in semantics.owner_uids(obj))
            )

        with self._lock:
            return ObjectList(tuple(filter(wanted, self._rows.all(kind))), str(self._rows.revision))

    def search(self, query: SearchQuery) -> SearchPage | None:
        """Search objects by their facts: `katib.engine.runtime.search.SearchableStore`."""
        if query.kind not in self._facts.kinds:
            return None
        with self._lock:
            return search_in(self._rows.by_age(query.kind), self._facts, query)

    def pages(
        self, kind: Kind, namespace: str | None = None, *, labels: Mapping[str, str] | None = None
    ) -> Iterator[ObjectList]:
        items, revision = (listed := self.list(kind, namespace, labels=labels)).items, listed.resource_version
        for start in range(0, len(items) or 1, PAGE_SIZE):
            yield ObjectList(items[start : start + PAGE_SIZE], revision, in_order=True)

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        events: list[WatchEvent] = []
        with self._lock:
            yield Transaction(self._rows, self._clock.now(), events)
            self._history.publish(events)
