"""The table of the log, as Katib's DB manager lays it out, so that both can share a database.

Differs from Katib's: an index, without which each read scans the readings of all trials, and on MySQL names and values
of any script that are told apart by case, whatever the database is set to.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Column, DateTime, Dialect, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects import sqlite
from sqlalchemy.types import TypeDecorator, TypeEngine

NAME_LENGTH = 255

INDEX = "observation_logs_by_metric"


class _SqliteTime(sqlite.DATETIME):
    """SQLAlchemy's text form of a time, written by C code: readings come by the million."""

    def bind_processor(self, dialect: Dialect) -> Callable[[datetime | None], str | None]:  # noqa: ARG002 - the signature is SQLAlchemy's
        return lambda value: None if value is None else value.isoformat(" ", "microseconds")


class UtcTime(TypeDecorator[datetime]):
    """A time with microseconds; aware in Python, in UTC and without zone in the database."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the column type; other dialects than SQLite's are imported only by those who use them."""
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
        """Return the time with its zone."""
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
    Index(INDEX, "trial_name", "metric_name", "time", "id"),
    mysql_charset="utf8mb4",
    mysql_collate="utf8mb4_bin",
)

VERSION_TABLE = "observation_log_version"
"""Alembic's own table under a name of ours: other rooms of the same database have their own history."""

observation_log_version = Table(
    VERSION_TABLE,
    metadata,
    # Named and sized as Alembic does it, so that a database made directly and one made by migrations are the same.
    Column("version_num", String(32), primary_key=True),
)
