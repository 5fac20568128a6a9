"""Layout of the object tables, and its version.

An object is one row with its JSON text; searchable values are beside it. Labels and owners have tables of their own,
clustered by the searched value, so that finding 10 trials among 10,000 reads 10 rows. `id` counts creations, and so
defines the order of lists; it is never reused, which would break that order.

`object_facts` holds the values that objects of some kinds are found and sorted by (`katib.engine.runtime.search`).
Every index of it ends with the object's id, that is: in order of creation. `object_revision` is one row: the revision
of the newest write.

To change the layout, raise `SCHEMA_VERSION` and add a step to `migrate`: these are few tables read by one module, for
which a migration tool would only slow down opening.
"""

from __future__ import annotations

import sqlite3

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
