"""Where the databases need different statements for the same thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from io import BytesIO
from typing import Any

from sqlalchemy import ColumnElement, Connection, Executable, TextClause, delete, literal_column, select, text

from katib.observations.tables import observation_logs as table

_DELETE_MYSQL = text("DELETE FROM observation_logs WHERE trial_name = :trial_name LIMIT :count")

_COPY = "COPY observation_logs (trial_name, time, metric_name, value) FROM STDIN"
_COPY_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


def insert(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows in as few statements as the database takes.

    SQLite's driver runs its prepared statement for each row, and MySQL's makes one statement of many rows. PostgreSQL's
    would wait for an answer to each row, so they are copied.
    """
    if connection.dialect.name == "postgresql":
        cursor: Any = connection.connection.cursor()
        cursor.execute(_COPY, stream=BytesIO("".join(map(_copied, rows)).encode()))
        cursor.close()
    else:
        connection.execute(table.insert(), rows)


def delete_some(dialect: str, trial_name: str, count: int) -> Executable:
    """Return the statement that removes at most so many readings of a trial."""
    if dialect == "mysql":
        # It would search the whole table for what an inner query finds.
        statement: TextClause = _DELETE_MYSQL.bindparams(trial_name=trial_name, count=count)
        return statement
    some = select(table.c.id).where(table.c.trial_name == trial_name).limit(count)
    return delete(table).where(table.c.id.in_(some))


def metric_is(dialect: str, name: str) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions under which a reading is one of this metric.

    A table that Katib's DB manager made on MySQL takes `Loss` for `loss` when it compares; its index finds both.
    """
    yield table.c.metric_name == name
    if dialect == "mysql":
        yield literal_column("CONVERT(metric_name USING utf8mb4) COLLATE utf8mb4_bin") == name


def _copied(row: Mapping[str, Any]) -> str:
    """Return a row in PostgreSQL's text format."""
    time = row["time"].astimezone(UTC).replace(tzinfo=None).isoformat(" ")
    trial_name, metric_name, value = (
        row[column].translate(_COPY_ESCAPES) for column in ("trial_name", "metric_name", "value")
    )
    return f"{trial_name}\t{time}\t{metric_name}\t{value}\n"
