"""Brings the tables of the log up to date.

An empty database is laid out directly and marked with the newest revision, without importing Alembic: `katib run` must
be up in a moment. Only an older layout is migrated. Tables that Katib's own DB manager made carry no revision; they are
those of the first one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, inspect, select

from katib.errors import TerminalError
from katib.observations.tables import VERSION_TABLE, metadata, observation_log_version, observation_logs

REVISIONS = ("0001", "0002")
"""All revisions that this version knows, oldest first; each is a file in `migrations/versions`."""

HEAD = REVISIONS[-1]
_KATIB = REVISIONS[0]

MIGRATIONS = Path(__file__).parent / "migrations"


class Transactions(Protocol):
    """A database: `katib.database.Database`, or anything with transactions that translate errors as it does."""

    def read(self) -> AbstractContextManager[Connection]:
        """Run a block on a consistent view."""

    def write(self) -> AbstractContextManager[Connection]:
        """Run a block as one transaction that writes; rolled back when the block raises."""


def prepare(database: Transactions) -> None:
    """Lay out the tables or bring them to the newest revision; cheap when they are there already.

    Raises:
        TerminalError: They were made by a newer version; nothing is changed.
        UnavailableError: The database does not answer.
    """
    with database.read() as connection:
        if _revision(connection) == HEAD:
            return
    with database.write() as connection:
        revision = _revision(connection)
        if revision is None:
            metadata.create_all(connection)
            connection.execute(observation_log_version.insert().values(version_num=HEAD))
        elif revision != HEAD:
            _migrate(connection, revision)


def _revision(connection: Connection) -> str | None:
    """Return the revision of the tables; None when there are none.

    Raises:
        TerminalError: It is none that we know.
    """
    inspector = inspect(connection)
    if inspector.has_table(VERSION_TABLE):
        revision = connection.execute(select(observation_log_version.c.version_num)).scalar()
        if revision is not None and revision not in REVISIONS:
            raise TerminalError(
                f"{connection.engine.url.render_as_string()}: observation log written by a newer version (schema "
                f"{revision}, this version knows {HEAD}); upgrade katib or use another database"
            )
        if revision is not None:
            return str(revision)
    return _KATIB if inspector.has_table(observation_logs.name) else None


def _migrate(connection: Connection, revision: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    if not inspect(connection).has_table(VERSION_TABLE):
        command.stamp(config, revision)
    command.upgrade(config, HEAD)
