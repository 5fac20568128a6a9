"""The object store in SQLite: transactions around rows, and the history of changes beside them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from katib.database import Database, driver_connection
from katib.errors import NotFoundError
from katib.runtime.clock import Clock, SystemClock
from katib.runtime.objects import Key, Kind, Object, ObjectList, Watch, WatchEvent
from katib.stores import semantics
from katib.stores.history import KEPT_CHANGES, LONGEST_BACKLOG, History
from katib.stores.sql import rows, tables
from katib.stores.transaction import Transaction

R = TypeVar("R")


class SqlStore:
    """An object store in a SQLite file: `katib.runtime.objects.ObjectStore`.

    Every write is committed when its call returns. One process owns the file: other processes may read it, but a change
    they make is not seen by watches here. The history of changes is in memory, so after a restart a watch begins with a
    list, as an informer does anyway.

    Args:
        database: The file; the tables are created or brought up to date. The caller closes it after the last use.
        status_kinds: Kinds with a status subresource. For all others `status` is a field like any other.
        clock: Stamps creations and deletions.
        kept_changes: How many changes a watch may start in the past.
        longest_backlog: How many changes a watch may leave unread before it expires.

    Raises:
        TerminalError: The file was written by a newer version, or is damaged.
        UnavailableError: The file cannot be had now.
    """

    def __init__(
        self,
        database: Database,
        status_kinds: Collection[Kind],
        *,
        clock: Clock | None = None,
        kept_changes: int = KEPT_CHANGES,
        longest_backlog: int = LONGEST_BACKLOG,
    ) -> None:
        self._database = database
        self._status_kinds = frozenset(status_kinds)
        self._clock = clock or SystemClock()
        database.upgrade(tables.ROOM, tables.SCHEMA_VERSION, tables.migrate)
        with database.read() as connection:
            revision = rows.read_revision(driver_connection(connection))
        self._history = History(revision, kept_changes=kept_changes, longest_backlog=longest_backlog)

    def get(self, kind: Kind, key: Key) -> Object:
        """Return an object."""
        with self._database.read() as connection:
            obj = rows.find_object(driver_connection(connection), kind, key)
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
        with self._database.read() as connection:
            driver = driver_connection(connection)
            items = rows.list_objects(driver, kind, namespace, labels or {}, owner_uid)
            return ObjectList(items, str(rows.read_revision(driver)))

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
        """Run an action in a transaction, and tell the watches once it is committed."""
        events: list[WatchEvent] = []
        with self._database.write(on_commit=lambda: self._history.publish(events)) as connection:
            objects = rows.SqlRows(driver_connection(connection))
            return action(Transaction(objects, self._status_kinds, self._clock.now(), events))
