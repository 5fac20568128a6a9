"""Object store in SQLite: transactions around rows, and the history of changes beside them."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from katib.engine.databases.sqlite import Database
from katib.engine.runtime.clock import Clock, SystemClock
from katib.engine.runtime.objects import Key, Kind, ListSlice, Object, ObjectList, WatchEvent
from katib.engine.runtime.search import NO_FACTS, FactsOf, SearchPage, SearchQuery
from katib.engine.stores.history import KEPT_CHANGES, LONGEST_BACKLOG, ChangeHistory
from katib.engine.stores.sql import rows
from katib.engine.stores.transaction import NO_DEFAULTS, Defaults, TransactedStore, Transaction
from katib.errors import NotFoundError

# Layout of the object tables, and its version.
#
# An object is one row with its JSON text; searchable values are beside it. Labels and owners have tables of their own,
# clustered by the searched value, so that finding 10 trials among 10,000 reads 10 rows. `id` counts creations, and so
# defines the order of lists; it is never reused, which would break that order.
#
# `object_facts` holds the values that objects of some kinds are found and sorted by (`katib.engine.runtime.search`).
# Every index of it ends with the object's id, that is: in order of creation. `object_revision` is one row: the revision
# of the newest write.
#
# To change the layout, raise `SCHEMA_VERSION` and add a step to `migrate`: these are few tables read by one module, for
# which a migration tool would only slow down opening.

ROOM = "objects"
SCHEMA_VERSION = 2
FACTS_ROOM = "object_facts"
"""The version of this room is that of the functions that derive facts."""

_OBJECT_ID = "object_id INTEGER NOT NULL REFERENCES objects (id) ON DELETE CASCADE"

_FIRST_TABLES = (
    """
    CREATE TABLE objects (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        api_version TEXT NOT NULL,
        kind TEXT NOT NULL,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        uid TEXT NOT NULL UNIQUE,
        body TEXT NOT NULL,
        UNIQUE (kind, api_version, namespace, name)
    )
    """,
    f"""
    CREATE TABLE object_labels (
        label TEXT NOT NULL, value TEXT NOT NULL, {_OBJECT_ID}, PRIMARY KEY (label, value, object_id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX object_labels_by_object ON object_labels (object_id)",
    f"""
    CREATE TABLE object_owners (
        owner_uid TEXT NOT NULL, {_OBJECT_ID}, PRIMARY KEY (owner_uid, object_id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX object_owners_by_object ON object_owners (object_id)",
    "CREATE TABLE object_revision (id INTEGER PRIMARY KEY, revision INTEGER NOT NULL)",
    "INSERT INTO object_revision VALUES (1, 0)",
)
_FACTS_TABLE = (
    f"""
    CREATE TABLE object_facts (
        {_OBJECT_ID} PRIMARY KEY,
        scope TEXT NOT NULL,
        state TEXT NOT NULL,
        name TEXT NOT NULL,
        cost DOUBLE NOT NULL,
        brevity DOUBLE NOT NULL
    )
    """,
    "CREATE INDEX object_facts_by_scope ON object_facts (scope)",
    "CREATE INDEX object_facts_by_state ON object_facts (scope, state)",
    "CREATE INDEX object_facts_by_name ON object_facts (scope, name)",
    "CREATE INDEX object_facts_by_cost ON object_facts (scope, cost)",
    "CREATE INDEX object_facts_by_brevity ON object_facts (scope, brevity)",
)


def migrate(connection: sqlite3.Connection, found: int) -> None:
    """Migrate the tables from a version (0: none) to `SCHEMA_VERSION`."""
    for statement in (*(_FIRST_TABLES if found == 0 else ()), *_FACTS_TABLE):
        connection.execute(statement)


PAGE_SIZE = 20
"""So few objects stay in a processor's cache while they are decoded; with 500 a list takes three times as long."""


class SqlStore(TransactedStore):
    """An object store in a SQLite file: `katib.engine.runtime.objects.ObjectStore`.

    Every write is committed when its call returns. One process owns the file: other processes may read it, but their
    changes are not seen by watches here. The history of changes is in memory, so after a restart a watch begins with a
    list, as an informer does anyway.

    Args:
        database: The file; the tables are created or migrated. The caller closes it after the last use.
        status_kinds: Kinds with a status subresource. For all others `status` is a field like any other.
        uid_kinds: Kinds whose objects keep their given uid; all others get a new one.
        defaults: Functions by kind that fill in a new object's defaults.
        facts: Derives the facts for searches; those of an older version are derived again.
        clock: Stamps creations and deletions.
        kept_changes: How many changes a watch may start in the past.
        longest_backlog: How many changes a watch may leave unread before it expires.

    Raises:
        TerminalError: The file was written by a newer version, or is damaged.
        UnavailableError: The file cannot be opened now.
    """

    def __init__(
        self,
        database: Database,
        status_kinds: Collection[Kind],
        *,
        uid_kinds: Collection[Kind] = (),
        defaults: Defaults = NO_DEFAULTS,
        facts: FactsOf = NO_FACTS,
        clock: Clock | None = None,
        kept_changes: int = KEPT_CHANGES,
        longest_backlog: int = LONGEST_BACKLOG,
    ) -> None:
        self._database = database
        self._facts = facts
        database.upgrade(ROOM, SCHEMA_VERSION, migrate)
        database.upgrade(FACTS_ROOM, facts.version, lambda driver, _found: rows.derive_all(driver, facts))
        with database.snapshot() as driver:
            revision = rows.read_revision(driver)
        history = ChangeHistory(revision, kept_changes=kept_changes, longest_backlog=longest_backlog)
        super().__init__(status_kinds, uid_kinds, clock or SystemClock(), history, defaults)

    def get(self, kind: Kind, key: Key) -> Object:
        with self._database.snapshot() as driver:
            obj = rows.SqlRows(driver, self._facts).find(kind, key)
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
        with self._database.snapshot() as driver:
            items = rows.list_objects(driver, kind, namespace, labels or {}, owner_uid)
            return ObjectList(items, str(rows.read_revision(driver)))

    def search(self, query: SearchQuery) -> SearchPage | None:
        """Search objects by the facts beside them: `katib.engine.runtime.search.SearchableStore`."""
        if query.kind not in self._facts.kinds:
            return None
        with self._database.snapshot() as driver:
            return rows.search(driver, query)

    def scopes(self, kind: Kind) -> Sequence[str]:
        """Return the scopes of the facts of a kind, such as the experiments of all trials, in order."""
        if kind not in self._facts.kinds:
            return ()
        with self._database.snapshot() as driver:
            return rows.scopes(driver)

    def pages(
        self, kind: Kind, namespace: str | None = None, *, labels: Mapping[str, str] | None = None
    ) -> Iterator[ObjectList]:
        """Yield the objects of a kind a page at a time, from one snapshot of the file."""
        with self._database.snapshot() as driver:
            revision = str(rows.read_revision(driver))
            for items in rows.object_pages(driver, kind, namespace, labels or {}, PAGE_SIZE):
                yield ObjectList(items, revision, in_order=True)

    def slice(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        limit: int,
        place: str = "",
    ) -> ListSlice:
        """Return objects after a place: `katib.engine.runtime.objects.SlicedStore`."""
        with self._database.snapshot() as driver:
            bodies, following = rows.slice_objects(driver, kind, namespace, labels or {}, limit, place)
            return ListSlice(bodies, str(rows.read_revision(driver)), following)

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        events: list[WatchEvent] = []
        with self._database.transaction(partial(self._history.publish, events)) as driver:
            yield Transaction(rows.SqlRows(driver, self._facts), self._clock.now(), events)
