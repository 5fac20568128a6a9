"""Tables of the log: that of the readings with the layout of Katib's DB manager, so that both can share a database.

Differs from Katib's: the step of a reading, a last column that Katib's statements do not name; an index, without which
each read scans the readings of all trials; and on MySQL case-sensitive names and values of any script, whatever the
database's setting.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    DateTime,
    Dialect,
    Double,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    delete,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeDecorator, TypeEngine

from katib.engine.databases.migrations import Migratable, upgrade, version_of
from katib.engine.observations.sqlite_tables import NO_STEP, ROOM, SCHEMA_VERSION
from katib.errors import TerminalError
from katib.model.metrics import LOGS_OF_KATIB, REPORTER_LENGTH

NAME_LENGTH = 255


class _SqliteTime(sqlite.DATETIME):
    """SQLAlchemy's text form of a time, formatted by C code: there are millions of readings."""

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], str | None]:  # noqa: ARG002 - the signature is SQLAlchemy's
        return lambda value: None if value is None else value.isoformat(" ", "microseconds")


class UtcTime(TypeDecorator[datetime]):
    """A time with microseconds; aware in Python, in UTC and without zone in the database."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column type; dialects other than SQLite's are imported on demand."""
        if dialect.name == "sqlite":
            return _SqliteTime()  # type: ignore[no-untyped-call]  # not annotated there
        if dialect.name == "postgresql":
            from sqlalchemy.dialects.postgresql import TIMESTAMP

            return TIMESTAMP(precision=6)
        if dialect.name in {"mysql", "mariadb"}:
            from sqlalchemy.dialects.mysql import DATETIME

            return DATETIME(fsp=6)
        return DateTime()

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - the signature is SQLAlchemy's
        """Return the time in UTC, without its zone."""
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - the signature is SQLAlchemy's
        return None if value is None else value.replace(tzinfo=UTC)


metadata = MetaData()

observation_logs = Table(
    "observation_logs",
    metadata,
    Column("trial_name", String(NAME_LENGTH), nullable=False),
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("time", UtcTime),
    Column("metric_name", String(NAME_LENGTH), nullable=False),
    Column("value", Text, nullable=False),
    Column("step", BigInteger, nullable=False, server_default=str(NO_STEP)),
    mysql_charset="utf8mb4",
    mysql_collate="utf8mb4_bin",
)

_CURVES = Index(
    "observation_logs_curves",
    *(observation_logs.c[name] for name in ("trial_name", "metric_name", "step", "time", "id")),
)

_FORMER_INDEX = "observation_logs_by_metric"
"""Index of the layouts without steps."""

log_access = Table(
    "observation_log_access",
    metadata,
    Column("trial_name", String(NAME_LENGTH), primary_key=True),
    Column("namespace", String(63), nullable=False),
    Column("reports_without_token", Boolean, nullable=False),
    Column("reads_without_token", Boolean, nullable=False),
    Column("has_ended", Boolean, nullable=False, server_default="0"),
    mysql_charset="utf8mb4",
    mysql_collate="utf8mb4_bin",
)
"""Owners of logs: the wire knows trials by name alone. Katib's DB manager ignores it."""

observation_reporters = Table(
    "observation_log_reporters",
    metadata,
    Column("trial_name", String(NAME_LENGTH), primary_key=True),
    Column("reporter", String(REPORTER_LENGTH), primary_key=True),
    Column("stored_to", BigInteger, nullable=False),
    mysql_charset="utf8mb4",
    mysql_collate="utf8mb4_bin",
)
"""Number of stored readings per reporter, so that none is stored twice."""

observation_extremes = Table(
    "observation_log_extremes",
    metadata,
    Column("trial_name", String(NAME_LENGTH), primary_key=True),
    Column("metric_name", String(NAME_LENGTH), primary_key=True),
    Column("low", Double, nullable=False),
    Column("low_value", Text, nullable=False),
    Column("high", Double, nullable=False),
    Column("high_value", Text, nullable=False),
    mysql_charset="utf8mb4",
    mysql_collate="utf8mb4_bin",
)
"""The smallest and the largest usable number of each metric."""

_EXTREMES = tuple(
    Index(f"{observation_extremes.name}_by_{name}", observation_extremes.c.metric_name, observation_extremes.c[name])
    for name in ("high", "low")
)

COMPANIONS = (observation_reporters, observation_extremes)
"""Tables with data of a trial beside its readings, deleted with them."""

_KATIBS = 1

_ALEMBIC = "observation_log_version"
"""Alembic's table of versions of earlier releases. It is left unchanged: they may be run again."""


class Transactions(Migratable, Protocol):
    """A database, such as `katib.engine.databases.sqlite.Database`: transactions that translate errors."""

    def write(self) -> AbstractContextManager[Connection]:
        """Run a block as one write transaction; rolled back if the block raises.

        Raises:
            OutcomeUnknownError: It is unknown whether the block took effect.
        """


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Extensions of Katib's table that exist.

    Attributes:
        has_steps: Whether steps can be stored.
    """

    has_steps: bool = True
    has_companions: bool = True


def prepare(database: Transactions) -> TableLayout:
    """Create or migrate the tables; raises as `katib.engine.databases.migrations.upgrade`."""
    upgrade(database, ROOM, SCHEMA_VERSION, _migrate, adopted=_adopted_version)
    return TableLayout()


def probe(database: Transactions) -> TableLayout:
    """Check that there is a usable table, without changes.

    Raises:
        TerminalError: There is none, or it was created by a newer version.
        UnavailableError: The database does not answer.
    """
    with database.read() as connection:
        if not version_of(database, connection, ROOM, SCHEMA_VERSION, _adopted_version):
            raise TerminalError(f"{database}: there is no table {observation_logs.name}; make it, or let it be made")
        katibs = [column for column in observation_logs.c if column.name != "step"]
        connection.execute(select(*katibs).limit(1)).all()
        inspector = inspect(connection)
        has_companions = all(inspector.has_table(companion.name) for companion in COMPANIONS)
        return TableLayout(has_steps=_has_steps(connection), has_companions=has_companions)


def _migrate(connection: Connection, found: int) -> None:
    """Create missing parts; MySQL commits each of these by itself, so each is checked."""
    observation_logs.create(connection, checkfirst=True)
    if not _has_steps(connection):
        name = observation_logs.name
        connection.execute(text(f"ALTER TABLE {name} ADD COLUMN step BIGINT NOT NULL DEFAULT '{NO_STEP}'"))
    _CURVES.create(connection, checkfirst=True)
    if any(index["name"] == _FORMER_INDEX for index in inspect(connection).get_indexes(observation_logs.name)):
        on_table = f" ON {observation_logs.name}" if connection.dialect.name == "mysql" else ""
        connection.execute(text(f"DROP INDEX {_FORMER_INDEX}{on_table}"))
    for companion in (log_access, *COMPANIONS):
        companion.create(connection, checkfirst=True)
    if not _has_column(connection, log_access.name, "has_ended"):
        connection.execute(text(f"ALTER TABLE {log_access.name} ADD COLUMN has_ended BOOLEAN NOT NULL DEFAULT '0'"))
    for index in _EXTREMES:
        index.create(connection, checkfirst=True)
    if found == _KATIBS:  # its running collectors send no token
        connection.execute(delete(log_access).where(log_access.c.trial_name == LOGS_OF_KATIB))
        opened = {"reports_without_token": True, "reads_without_token": True, "has_ended": False}
        connection.execute(log_access.insert().values(trial_name=LOGS_OF_KATIB, namespace="", **opened))


def _has_steps(connection: Connection) -> bool:
    return _has_column(connection, observation_logs.name, "step")


def _has_column(connection: Connection, table: str, name: str) -> bool:
    return any(column["name"] == name for column in inspect(connection).get_columns(table))


def _adopted_version(connection: Connection) -> int:
    """Return the version of tables created by Katib, or by an earlier release with Alembic."""
    tables = inspect(connection)
    if tables.has_table(_ALEMBIC):
        version = connection.execute(text(f"SELECT version_num FROM {_ALEMBIC}")).scalar()  # noqa: S608 - a constant
        if version is not None:
            return int(version)
    return _KATIBS if tables.has_table(observation_logs.name) else 0
