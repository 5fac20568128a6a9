"""Brings the tables of the log up to date.

An empty database is laid out directly and marked with the newest revision, without importing Alembic: `katib run` must
be up in a moment. Only an older layout is migrated. Tables that Katib's own DB manager made carry no revision; they are
those of the first one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

from sqlalchemy import Connection, inspect, select

from katib.errors import TerminalError
from katib.observations.tables import VERSION_TABLE, metadata, observation_log_version, observation_logs

REVISIONS = ("0001", "0002")
"""All revisions that this version knows, oldest first; each is a file in `migrations/versions`."""

HEAD = REVISIONS[-1]
_KATIB = REVISIONS[0]

_PURPOSE = "observation-log"

MIGRATIONS = Path(__file__).parent / "migrations"


class Transactions(Protocol):
    """A database: `katib.database.Database`, or anything with transactions that translate errors as it does."""

    def read(self) -> AbstractContextManager[Connection]:
        """Run a block on a consistent view."""

    def write(self) -> AbstractContextManager[Connection]:
        """Run a block as one transaction that writes; rolled back when the block raises.

        Raises:
            OutcomeUnknownError: It cannot be told whether the block took effect.
        """


@runtime_checkable
class Exclusive(Protocol):
    """What a database has in addition that several processes write to at once."""

    def exclusive(self, purpose: str) -> AbstractContextManager[Connection]:
        """Run a block that may change tables, alone among all who name the same purpose; takes as long as it takes."""


def prepare(database: Transactions) -> None:
    """Lay out the tables or bring them to the newest revision; cheap when they are there already.

    Processes that prepare one database at once do it one after the other, and a killed one is gone on from.

    Raises:
        TerminalError: They were made by a newer version; nothing is changed.
        UnavailableError: The database does not answer.
    """
    with database.read() as connection:
        if _revision(connection) == HEAD:
            return
    with database.exclusive(_PURPOSE) if isinstance(database, Exclusive) else database.write() as connection:
        revision = _revision(connection)
        if revision is None:
            metadata.create_all(connection)
            connection.execute(observation_log_version.insert().values(version_num=HEAD))
        elif revision != HEAD:
            _migrate(connection, revision)


def probe(database: Transactions) -> None:
    """Make sure that there is a table that can be used, and change nothing.

    Raises:
        TerminalError: There is none, or it was made by a newer version.
        UnavailableError: The database does not answer.
    """
    with database.read() as connection:
        if _revision(connection) is None:
            raise TerminalError(
                f"{connection.engine.url.database or connection.dialect.name}: there is no table "
                f"{observation_logs.name}; make it, or let it be made"
            )
        connection.execute(select(observation_logs).limit(1)).all()


def _revision(connection: Connection) -> str | None:
    """Return the revision of the tables; None when there are none.

    Raises:
        TerminalError: It is none that we know.
    """
    revision = _stamped(connection)
    if revision is None:
        return _KATIB if inspect(connection).has_table(observation_logs.name) else None
    if revision not in REVISIONS:
        raise TerminalError(
            f"{connection.engine.url.render_as_string()}: observation log written by a newer version (schema "
            f"{revision}, this version knows {HEAD}); upgrade katib or use another database"
        )
    return revision


def _stamped(connection: Connection) -> str | None:
    """Return the revision that is written down; None when there is none."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(select(observation_log_version.c.version_num)).scalar()


def _migrate(connection: Connection, revision: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    if _stamped(connection) is None:
        command.stamp(config, revision)
    command.upgrade(config, HEAD)
