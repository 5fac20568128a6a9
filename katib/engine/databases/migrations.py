"""Migration of a room's tables from any earlier version to the newest, in every database.

A room numbers the layouts of its tables, and a database stores the number of each room. For tables that are up to date,
a start costs one small query and no write. Migrations exclude all other processes that open the database: the number is
read again under the lock, since another process may have migrated first.

Why not Alembic: importing it takes longer than opening a data directory does, and these are few small tables.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, delete, inspect, select

from katib.engine.databases.sqlite import newer

Migrate = Callable[[Connection, int], None]
"""Migrates a room's tables from a version (0: none exist) to the newest.  MySQL commits at each change of a table, so a
step must be able to continue after a killed process."""


class Migratable(Protocol):
    """A database whose tables can be migrated.

    Attributes:
        elsewhere: Option that selects another database.
    """

    versions_table: str
    elsewhere: str

    def __str__(self) -> str:
        """Return the name of the database in messages."""

    def read(self) -> AbstractContextManager[Connection]:
        """Run a block on a consistent view."""

    def exclusive(self, purpose: str, /) -> AbstractContextManager[Connection]:
        """Run a block that may change tables, excluding all processes with the same purpose.

        Raises:
            OutdatedError: The database is open for reading only.
        """


def upgrade(
    database: Migratable,
    room: str,
    version: int,
    migrate: Migrate,
    *,
    adopted: Callable[[Connection], int] = lambda _connection: 0,
) -> None:
    """Migrate a room's tables to a version; cheap if they are up to date.

    Args:
        adopted: Returns the version of tables that are older than the table of versions.

    Raises:
        TerminalError: The tables were created by a newer version; nothing is changed.
        UnavailableError: The database does not answer.
    """
    with database.read() as connection:
        if version_of(database, connection, room, version, adopted) == version:
            return
    with database.exclusive(room) as connection:
        found = version_of(database, connection, room, version, adopted)
        if found == version:
            return
        migrate(connection, found)
        table = _versions(database.versions_table)
        table.create(connection, checkfirst=True)
        connection.execute(delete(table).where(table.c.room == room))
        connection.execute(table.insert().values(room=room, version=version))


def version_of(
    database: Migratable, connection: Connection, room: str, newest: int, adopted: Callable[[Connection], int]
) -> int:
    """Return the version of a room's tables; 0 if there are none. Arguments and errors as in `upgrade`."""
    found = version_in(connection, database.versions_table, room) or adopted(connection)
    if found > newest:
        raise newer(database, room, found, newest)
    return found


def version_in(connection: Connection, versions_table: str, room: str) -> int:
    """Return the stored version of a room's tables; 0 if there is none."""
    if not inspect(connection).has_table(versions_table):
        return 0
    table = _versions(versions_table)
    return int(connection.execute(select(table.c.version).where(table.c.room == room)).scalar() or 0)


def _versions(name: str) -> Table:
    columns = (Column("room", String(63), primary_key=True), Column("version", Integer, nullable=False))
    return Table(name, MetaData(), *columns)
