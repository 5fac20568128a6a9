"""Effect of a write on all objects: one object changes, others follow their owners.

A store provides `ObjectRows`: storage for objects, already inside a transaction. `Transaction` works on it and collects
the events to publish once the rows are committed. Garbage collection happens in the same transaction as the deletion
that causes it, so no reader ever sees an object without its owner:

- an object is removed if it was deleted and has no finalizers (left),
- with it, the objects that name it as an owner are removed, unless another of their owners still exists; those with
  finalizers are marked and wait,
- an object created with only missing owners is removed at once: its creator acted on a stale read.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Struct

from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import EventType, Key, Kind, Object, WatchEvent
from katib.engine.stores import semantics
from katib.engine.stores.history import ChangeHistory, StoreWatch
from katib.engine.stores.semantics import Json
from katib.errors import AlreadyExistsError, InternalError, NotFoundError
from katib.model.json_values import same_json

_NAME_TRIES = 8
"""Suffixes are one in 14 million; a second try is rare, an eighth indicates another error."""


class ObjectRows(Protocol):
    """Storage of objects, inside one write transaction. Objects passed to it are never changed afterwards."""

    def next_revision(self) -> int:
        """Return a revision greater than any before."""

    def find(self, kind: Kind, key: Key) -> Object | None:
        """Return an object or None."""

    def has_uid(self, uid: str) -> bool:
        """Return whether an object with this uid exists."""

    def owned_by(self, uid: str) -> list[Object]:
        """Return the objects of any kind that name this uid as an owner, in order of creation."""

    def insert(self, obj: Object) -> Any:
        """Add an object under a new name; return the decoded object if it was read for a search, else None."""

    def replace(self, old: Object, new: Object) -> Any:
        """Put an object in place of its earlier state. Returns as `insert`."""

    def remove(self, obj: Object) -> None:
        """Remove an object."""


class Transaction(Struct, frozen=True):
    """One write and its consequences.

    Attributes:
        events: Collects the events to publish after the commit.
    """

    rows: ObjectRows
    now: datetime
    events: list[WatchEvent]

    def existing(self, kind: Kind, key: Key) -> Object:
        """Return an object.

        Raises:
            NotFoundError: There is none.
        """
        obj = self.rows.find(kind, key)
        if obj is None:
            raise NotFoundError(f"{kind.kind} {key}: not found")
        return obj

    def free_name(self, kind: Kind, obj: Json) -> str:
        """Return a generated name for a new object."""
        for _ in range(_NAME_TRIES):
            name = semantics.generated_name(obj)
            if self.rows.find(kind, Key(obj["metadata"].get("namespace", ""), name)) is None:
                return name
        raise AlreadyExistsError(f"{semantics.describe(obj)}: no free name found; choose another generateName")

    def replace(self, old: Object, new: Object) -> Object:
        """Replace an object by its next state; return that with its revision."""
        new = self.revised(new)
        self.events.append(WatchEvent(EventType.MODIFIED, new, self.rows.replace(old, new)))
        return new

    def insert(self, obj: Object) -> Json:
        new = self.revised(obj)
        self.events.append(WatchEvent(EventType.ADDED, new, self.rows.insert(new)))
        return new

    def delete(self, obj: Object) -> None:
        if not semantics.has_finalizers(obj):
            self.remove(obj)
        elif marked := semantics.marked_for_deletion(obj, self.now):
            self.replace(obj, marked)

    def remove(self, stored: Object, last: Object | None = None) -> Object:
        """Remove an object, then the objects without other owners, recursively; return its last state."""
        rows = self.rows
        final = self.deleted(last or stored)
        rows.remove(stored)
        orphans = deque(rows.owned_by(stored["metadata"]["uid"]))
        handled: set[str] = set()  # an orphan of two removed owners is visited twice
        while orphans:
            orphan = orphans.popleft()
            uid = orphan["metadata"]["uid"]
            if uid in handled or not self.is_garbage(orphan):
                continue
            handled.add(uid)
            if semantics.has_finalizers(orphan):
                self.delete(orphan)
            else:
                self.deleted(orphan)
                rows.remove(orphan)
                orphans.extend(rows.owned_by(uid))
        return final

    def revised(self, obj: Object) -> Json:
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.rows.next_revision())}}

    def deleted(self, obj: Object) -> Json:
        """Return an object with the revision of its deletion, which is published after the commit."""
        final = self.revised(obj)
        self.events.append(WatchEvent(EventType.DELETED, final))
        return final

    def is_garbage(self, obj: Object) -> bool:
        """Return whether an object had owners and all of them are gone."""
        owners = semantics.owner_uids(obj)
        return bool(owners) and not any(map(self.rows.has_uid, owners))


Defaults = Mapping[Kind, Callable[[Object], Json]]
NO_DEFAULTS: Defaults = MappingProxyType({})


class TransactedStore(ABC):
    """Writes and watches of an object store; a subclass provides the transactions.

    Args:
        uid_kinds: Kinds whose objects keep their given uid, because they exist before they are stored. All others get a
            new one.
        clock: Stamps creations and deletions.
        history: Receives every write, in order.
        defaults: Functions by kind that fill in the defaults of a new object, which has its uid.
    """

    def __init__(
        self,
        status_kinds: Collection[Kind],
        uid_kinds: Collection[Kind],
        clock: Clock,
        history: ChangeHistory,
        defaults: Defaults,
    ) -> None:
        self._defaults = defaults
        self._status_kinds = frozenset(status_kinds)
        self._uid_kinds = frozenset(uid_kinds)
        self._clock = clock
        self._history = history

    def create(self, obj: Object, *, whole: bool = False) -> Object:
        """Store a new object; `whole` to keep its given status."""
        given = semantics.isolated(obj)
        kind, key = Kind.of(given), Key.of(given)
        with self._transaction() as transaction:
            if not key.name:
                given["metadata"]["name"] = transaction.free_name(kind, given)
            elif transaction.rows.find(kind, key) is not None:
                raise AlreadyExistsError(f"{semantics.describe(given)}: exists; delete it or choose another name")
            uid = (semantics.given_uid(given) if kind in self._uid_kinds else "") or str(uuid.uuid4())
            has_status = kind in self._status_kinds and not whole
            new = semantics.created(given, uid, transaction.now, has_status=has_status)
            if kind in self._defaults:
                new = self._defaults[kind](new)
            new = transaction.insert(new)
            if transaction.is_garbage(new):
                transaction.delete(new)
            return new

    def update(self, obj: Object) -> Object:
        return self._update(semantics.isolated(obj))

    def patch(self, obj: Object, changes: Mapping[str, Any]) -> Object:
        return self._update(semantics.isolated(obj), semantics.require_patch(changes))

    def _update(self, obj: Json, changes: Json | None = None) -> Object:
        """Replace everything but the status by that of an isolated object, or merge checked changes."""
        kind, key = Kind.of(obj), Key.of(obj)
        with self._transaction() as transaction:
            old = transaction.existing(kind, key)
            wanted = obj if changes is None else semantics.patched(old, obj, changes)
            new = semantics.updated(old, wanted, has_status=kind in self._status_kinds)
            if new is None:
                return old
            return transaction.remove(old, new) if semantics.is_finished(new) else transaction.replace(old, new)

    def create_whole(self, obj: Object) -> Object:
        """Store a new object with its status: `katib.engine.runtime.objects.WholeWrites`."""
        return self.create(obj, whole=True)

    def patch_whole(self, obj: Object, changes: Mapping[str, Any]) -> Object:
        """Change the named fields and replace the status: `katib.engine.runtime.objects.WholeWrites`."""
        given, patch = semantics.isolated(obj), semantics.require_patch(changes)
        with self._transaction() as transaction:
            old = transaction.existing(Kind.of(given), Key.of(given))
            status = {"status": given["status"]} if "status" in given else {}
            changed = semantics.updated(old, semantics.patched(old, given, patch), has_status=True) or old
            new = {**{name: value for name, value in changed.items() if name != "status"}, **status}
            return old if same_json(old, new) else transaction.replace(old, new)

    def update_status(self, obj: Object) -> Object:
        given = semantics.isolated(obj)
        kind, key = Kind.of(given), Key.of(given)
        if kind not in self._status_kinds:
            raise InternalError(f"{semantics.describe(given)}: this kind has no separate status; use update")
        with self._transaction() as transaction:
            old = transaction.existing(kind, key)
            new = semantics.status_updated(old, given)
            return old if new is None else transaction.replace(old, new)

    def delete(self, kind: Kind, key: Key, *, uid: str | None = None) -> None:
        """Delete an object and its dependents, or mark it if it has finalizers."""
        with self._transaction() as transaction:
            old = transaction.existing(kind, key)
            if uid is not None and uid != old["metadata"]["uid"]:
                raise NotFoundError(f"{semantics.describe(old)}: uid {uid} is gone, another object has its name")
            transaction.delete(old)

    def watch(self, kind: Kind, since: str) -> StoreWatch:
        return self._history.watch(kind, since)

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Transaction]:
        """Run a block as one write, and publish its events after the commit, before any other writer."""
