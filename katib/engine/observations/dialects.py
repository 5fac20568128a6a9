"""Statements that differ between dialects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Select,
    Text,
    TextClause,
    cast,
    delete,
    func,
    literal_column,
    select,
    text,
)

from katib.engine.observations.sqlite_tables import Row, bound_row
from katib.engine.observations.tables import observation_logs as table

_DELETE_MYSQL = text("DELETE FROM observation_logs WHERE trial_name = :trial_name LIMIT :count")

_COLUMNS = ("trial_name", "time", "metric_name", "value", "step")
_COPY_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


def insert(connection: Connection, rows: Sequence[Row], *, has_steps: bool = True) -> None:
    """Append rows in as few statements as the database allows; without steps if there is no column for them.

    SQLite's driver runs its prepared statement for each row, and MySQL's creates one statement for many rows.
    PostgreSQL's would wait for a response to each row, so COPY is used.
    """
    columns = _COLUMNS if has_steps else _COLUMNS[:-1]
    if connection.dialect.name == "postgresql":
        statement = f"COPY {table.name} ({', '.join(columns)}) FROM STDIN"
        text_of = _copied if has_steps else _copied_without_step
        _with_cursor(connection, "execute", statement, stream=BytesIO("".join(map(text_of, rows)).encode()))
    elif connection.dialect.name == "sqlite":
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 - constants
        _with_cursor(connection, "executemany", statement, [bound_row(row)[: len(columns)] for row in rows])
    else:
        connection.execute(table.insert(), [dict(zip(columns, row, strict=False)) for row in rows])


def fetch_readings(connection: Connection, query: Select[Any]) -> list[Sequence[Any]]:
    """Return the rows of a query of readings: time, metric, value, step, id.

    PostgreSQL's driver decodes each column of each row in Python. There the rows are sent as one JSON text, which takes
    half the time; it is in memory as a whole, so use it for as many readings as a caller needs at once.
    """
    if connection.dialect.name != "postgresql":
        return list(connection.execute(query).all())
    rows = query.subquery()
    row = func.json_build_array(*rows.c)
    whole = connection.execute(select(cast(func.json_agg(row), Text))).scalar()
    found: list[list[Any]] = [] if whole is None else json.loads(whole)
    return [(datetime.fromisoformat(time).replace(tzinfo=UTC), *others) for time, *others in found]


def _with_cursor(connection: Connection, call: str, *arguments: Any, **keywords: Any) -> None:
    """Call the driver directly: SQLAlchemy's work per row takes longer than the database's."""
    cursor: Any = connection.connection.cursor()
    try:
        getattr(cursor, call)(*arguments, **keywords)
    finally:
        cursor.close()


def _plain(time: datetime) -> datetime:
    """Return a time in UTC, without its zone."""
    return (time if time.tzinfo is UTC else time.astimezone(UTC)).replace(tzinfo=None)


def delete_some(dialect: str, trial_name: str, count: int) -> Executable:
    """Return the statement that removes up to a number of readings of a trial."""
    if dialect == "mysql":
        # An inner query would make MySQL search the whole table.
        statement: TextClause = _DELETE_MYSQL.bindparams(trial_name=trial_name, count=count)
        return statement
    some = select(table.c.id).where(table.c.trial_name == trial_name).limit(count)
    return delete(table).where(table.c.id.in_(some))


def metric_is(dialect: str, name: str | ColumnElement[str]) -> Iterator[ColumnElement[bool]]:
    """Yield the conditions for a reading of this metric.

    A table created by Katib's DB manager on MySQL compares `Loss` and `loss` as equal, and any table there ignores
    trailing blanks; its index finds both.
    """
    yield table.c.metric_name == name
    if dialect == "mysql":
        yield literal_column("BINARY CONVERT(metric_name USING utf8mb4)") == name


def _copied(row: Row) -> str:
    """Return a row in PostgreSQL's text format."""
    return f"{_copied_without_step(row)[:-1]}\t{row[4]}\n"


def _copied_without_step(row: Row) -> str:
    trial_name, time, metric_name, value, _ = row
    names = (
        f"{trial_name.translate(_COPY_ESCAPES)}\t{_plain(time).isoformat(' ')}\t{metric_name.translate(_COPY_ESCAPES)}"
    )
    return f"{names}\t{value.translate(_COPY_ESCAPES)}\n"
