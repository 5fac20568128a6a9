"""Attributes of objects: named texts that are stored beside an object and deleted with it.

Reading an object does not read its attributes, so that they may be many and large, and writing one does not wake
watches of objects. They are in a table of their own in the file of the objects.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from katib.engine.databases.sqlite import Database
from katib.errors import NotFoundError

ROOM = "object_attributes"
SCHEMA_VERSION = 1

_TABLE = """
    CREATE TABLE object_attributes (
        object_id INTEGER NOT NULL REFERENCES objects (id) ON DELETE CASCADE,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (object_id, kind, name)
    )
"""
_PUT = (
    "INSERT INTO object_attributes SELECT id, ?, ?, ? FROM objects WHERE uid = ?"
    " ON CONFLICT (object_id, kind, name) DO UPDATE SET value = excluded.value"
)
_SELECT = "SELECT uid, object_attributes.kind, object_attributes.name, value FROM objects"
_SELECT += " JOIN object_attributes ON objects.id = object_id"
_OF = f"{_SELECT} WHERE uid = ? ORDER BY object_attributes.rowid"
_OF_OWNED = (
    f"{_SELECT} WHERE objects.id IN (SELECT object_id FROM object_owners WHERE owner_uid = ?)"  # noqa: S608 - of constants
    " ORDER BY object_attributes.rowid"
)


class SqlAttributes:
    """Attributes of objects in SQLite. Implements `katib.service.tuning.ports.Attributes`. Thread-safe.

    Args:
        database: The file of the objects, whose tables exist.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        database.upgrade(ROOM, SCHEMA_VERSION, lambda driver, _found: _create(driver))

    def put(self, uid: str, attributes: Iterable[tuple[str, str, str]]) -> None:
        rows = [(kind, name, value, uid) for kind, name, value in attributes]
        with self._database.transaction() as driver:
            found = driver.executemany(_PUT, rows).rowcount
        if rows and not found:
            raise NotFoundError(f"the object with the uid {uid} is gone")

    def of(self, uid: str) -> Iterator[tuple[str, str, str]]:
        with self._database.snapshot() as driver:
            found = driver.execute(_OF, (uid,)).fetchall()
        return ((kind, name, value) for _, kind, name, value in found)

    def of_owned(self, owner_uid: str) -> Iterator[tuple[str, str, str, str]]:
        with self._database.snapshot() as driver:
            yield from driver.execute(_OF_OWNED, (owner_uid,))


def _create(driver: sqlite3.Connection) -> None:
    driver.execute(_TABLE)
