"""What a write does to all objects: one object changes, others follow their owners.

`Rows` is what a store brings: a place for objects, already inside a transaction. `Transaction` works on it and collects
the events to publish once the rows are committed. Garbage collection happens in the same transaction as the deletion
that causes it, so no reader ever sees an object without its owner:

- an object goes when it was deleted and has no finalizers (left),
- with it go the objects that name it as an owner, unless another of their owners still exists; those with finalizers
  are marked and wait,
- an object that is created under owners none of which exists goes at once: its creator acted on an old reading.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from msgspec import Struct

from katib.api.json_values import same_json
from katib.errors import AlreadyExistsError, InternalError, NotFoundError
from katib.runtime.clock import Clock
from katib.runtime.objects import EventType, Key, Kind, Object, Watch, WatchEvent, place_of
from katib.stores import semantics
from katib.stores.history import History
from katib.stores.semantics import Json

P = ParamSpec("P")
R = TypeVar("R")

_NAME_TRIES = 8
"""Suffixes are one in 14 million; a second try is rare, an eighth means that something else is wrong."""


class Rows(Protocol):
    """Where a store keeps objects, inside one write transaction. Objects given to it are never changed afterwards."""

    def next_revision(self) -> int:
        """Return a revision greater than any before."""

    def find(self, kind: Kind, key: Key) -> Object | None:
        """Return an object or None."""

    def has_uid(self, uid: str) -> bool:
        """Return whether an object with this uid exists."""

    def owned_by(self, uid: str) -> list[Object]:
        """Return the objects of any kind that name this uid as an owner, in order of creation."""

    def insert(self, obj: Object) -> None:
        """Add an object under a new name."""

    def replace(self, old: Object, new: Object) -> None:
        """Put an object in place of its earlier state."""

    def remove(self, obj: Object) -> None:
        """Take an object away."""


class Transaction(Struct, frozen=True):
    """One write and all that follows from it.

    Attributes:
        rows: Where the objects are.
        status_kinds: Kinds with a status subresource.
        uid_kinds: Kinds whose objects keep the uid that they bring.
        now: When the write happens.
        events: Takes what is to be published after the commit.
    """

    _rows: Rows
    _status_kinds: Collection[Kind]
    _uid_kinds: Collection[Kind]
    _now: datetime
    _events: list[WatchEvent]

    def create(self, obj: Json, *, whole: bool = False) -> Object:
        """Store a new, isolated object; `whole` when it keeps the status that it brings."""
        kind, key = place_of(obj)
        self._choose_name(kind, key, obj)
        uid = (semantics.given_uid(obj) if kind in self._uid_kinds else "") or str(uuid.uuid4())
        new = semantics.created(obj, uid, self._now, has_status=kind in self._status_kinds and not whole)
        new = semantics.at_revision(new, self._rows.next_revision())
        self._rows.insert(new)
        self._events.append(WatchEvent(EventType.ADDED, new))
        if self._is_garbage(new):
            self._delete(new)
        return new

    def update(self, obj: Json, changes: Json | None = None) -> Object:
        """Replace everything but the status with that of an isolated object, or with checked changes merged in."""
        kind, key = place_of(obj)
        old = self._existing(kind, key)
        wanted = obj if changes is None else semantics.patched(old, obj, changes)
        new = semantics.updated(old, wanted, has_status=kind in self._status_kinds)
        if new is None:
            return old
        return self._remove(old, new) if semantics.is_finished(new) else self._replace(old, new)

    def patch_whole(self, obj: Json, changes: Json) -> Object:
        """Merge checked changes into an isolated object and replace the status with its own."""
        old = self._existing(*place_of(obj))
        status = {"status": obj["status"]} if "status" in obj else {}
        changed = semantics.updated(old, semantics.patched(old, obj, changes), has_status=True) or old
        new = {**{name: value for name, value in changed.items() if name != "status"}, **status}
        return old if same_json(old, new) else self._replace(old, new)

    def update_status(self, obj: Json) -> Object:
        """Replace the status with that of an isolated object."""
        kind, key = place_of(obj)
        if kind not in self._status_kinds:
            raise InternalError(f"{semantics.describe(obj)}: this kind has no separate status; use update")
        old = self._existing(kind, key)
        new = semantics.status_updated(old, obj)
        return old if new is None else self._replace(old, new)

    def delete(self, kind: Kind, key: Key, uid: str | None) -> None:
        """Delete an object and what it owns, or mark it when it has finalizers."""
        old = self._existing(kind, key)
        if uid is not None and uid != old["metadata"]["uid"]:
            raise NotFoundError(f"{semantics.describe(old)}: uid {uid} is gone, another object has its name")
        self._delete(old)

    def _existing(self, kind: Kind, key: Key) -> Object:
        obj = self._rows.find(kind, key)
        if obj is None:
            raise NotFoundError(f"{kind.kind} {key}: not found")
        return obj

    def _choose_name(self, kind: Kind, key: Key, obj: Json) -> None:
        if key.name:
            if self._rows.find(kind, key) is not None:
                raise AlreadyExistsError(f"{semantics.describe(obj)}: exists; delete it or choose another name")
            return
        for _ in range(_NAME_TRIES):
            obj["metadata"]["name"] = semantics.generated_name(obj)
            if self._rows.find(kind, Key(key.namespace, obj["metadata"]["name"])) is None:
                return
        raise AlreadyExistsError(f"{semantics.describe(obj)}: no free name found; choose another generateName")

    def _replace(self, old: Object, new: Object) -> Object:
        new = semantics.at_revision(new, self._rows.next_revision())
        self._rows.replace(old, new)
        self._events.append(WatchEvent(EventType.MODIFIED, new))
        return new

    def _delete(self, obj: Object) -> None:
        if not semantics.has_finalizers(obj):
            self._remove(obj)
        elif marked := semantics.marked_for_deletion(obj, self._now):
            self._replace(obj, marked)

    def _remove(self, stored: Object, last: Object | None = None) -> Object:
        """Remove an object, then the objects that had no other owner, and so on; return its last state."""
        rows = self._rows
        final = self._discard(stored, last or stored)
        orphans = deque(rows.owned_by(stored["metadata"]["uid"]))
        handled: set[str] = set()  # an orphan of two owners that go together is met twice
        while orphans:
            orphan = orphans.popleft()
            uid = orphan["metadata"]["uid"]
            if uid in handled or not self._is_garbage(orphan):
                continue
            handled.add(uid)
            if semantics.has_finalizers(orphan):
                self._delete(orphan)
            else:
                self._discard(orphan, orphan)
                orphans.extend(rows.owned_by(uid))
        return final

    def _discard(self, stored: Object, last: Object) -> Object:
        final = semantics.at_revision(last, self._rows.next_revision())
        self._rows.remove(stored)
        self._events.append(WatchEvent(EventType.DELETED, final))
        return final

    def _is_garbage(self, obj: Object) -> bool:
        """Return whether an object had owners and all of them are gone."""
        owners = semantics.owner_uids(obj)
        return bool(owners) and not any(map(self._rows.has_uid, owners))


Transact = Callable[[Callable[[Any], Any], Callable[[], None]], Any]
"""Runs an action in one transaction and returns its result; the other function follows the commit, before any other
writer."""


class TransactedStore:
    """The writes and watches of an object store, which brings rows and transactions.

    Args:
        transact: Runs transactions.
        rows: Makes the rows of what a transaction is handed.
        status_kinds: Kinds with a status subresource.
        uid_kinds: Kinds whose objects keep the uid that they bring, because they exist before they are stored. All
            others are given one.
        clock: Stamps creations and deletions.
        history: Receives every write, in order.
    """

    def __init__(
        self,
        transact: Transact,
        rows: Callable[[Any], Rows],
        status_kinds: Collection[Kind],
        uid_kinds: Collection[Kind],
        clock: Clock,
        history: History,
    ) -> None:
        self._transact = transact
        self._rows_of = rows
        self._status_kinds = frozenset(status_kinds)
        self._uid_kinds = frozenset(uid_kinds)
        self._clock = clock
        self._history = history

    def create(self, obj: Object) -> Object:
        """Store a new object."""
        return self._write(Transaction.create, semantics.isolated(obj))

    def update(self, obj: Object) -> Object:
        """Replace everything but the status."""
        return self._write(Transaction.update, semantics.isolated(obj))

    def patch(self, obj: Object, changes: Mapping[str, Any]) -> Object:
        """Change the named fields."""
        return self._write(Transaction.update, semantics.header(obj), semantics.require_patch(changes))

    def create_whole(self, obj: Object) -> Object:
        """Store a new object with its status: `katib.runtime.objects.WholeWrites`."""
        return self._write(Transaction.create, semantics.isolated(obj), whole=True)

    def patch_whole(self, obj: Object, changes: Mapping[str, Any]) -> Object:
        """Change the named fields and replace the status: `katib.runtime.objects.WholeWrites`."""
        return self._write(Transaction.patch_whole, semantics.header(obj, "status"), semantics.require_patch(changes))

    def update_status(self, obj: Object) -> Object:
        """Replace the status."""
        return self._write(Transaction.update_status, semantics.header(obj, "status"))

    def delete(self, kind: Kind, key: Key, *, uid: str | None = None) -> None:
        """Delete an object and what it owns."""
        self._write(Transaction.delete, kind, key, uid)

    def watch(self, kind: Kind, since: str) -> Watch:
        """Stream changes."""
        return self._history.watch(kind, since)

    def _write(self, method: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a method of a transaction, and publish what follows from it."""
        events: list[WatchEvent] = []

        def run(place: Any) -> R:
            rows, now = self._rows_of(place), self._clock.now()
            return method(Transaction(rows, self._status_kinds, self._uid_kinds, now, events), *args, **kwargs)

        result: R = self._transact(run, partial(self._history.publish, events))
        return result
