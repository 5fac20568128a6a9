"""The observation log in a SQL database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, bindparam, select, text, tuple_

from katib.api.metrics import MetricLog
from katib.api.summary import observation_of
from katib.api.timestamps import format_timestamp, parse_time
from katib.api.types import Observation
from katib.errors import FieldError, InvalidError, OutcomeUnknownError
from katib.observations.confirmation import Unconfirmed, receipt_of
from katib.observations.dialects import delete_some, insert, metric_is
from katib.observations.schema import Transactions, prepare, probe
from katib.observations.tables import observation_logs as table

INSERT_ROWS = 10_000
"""Rows handed to the driver at once; bounds memory, while the transaction is one."""

FETCH_ROWS = 10_000
DELETE_ROWS = 50_000
"""Rows removed in one transaction: a log of millions must not hold the writers' lock for seconds."""


# Built once: a trial of one reading costs more to ask about than to read.
_VALUES = (
    select(table.c.metric_name, table.c.value)
    .where(table.c.trial_name == bindparam("trial_name"), table.c.metric_name.in_(bindparam("metrics", expanding=True)))
    .order_by(table.c.metric_name, table.c.time, table.c.id)
    .execution_options(yield_per=FETCH_ROWS)
)


class SqlObservationLog:
    """Fits the log that controllers, collectors and readers ask for. Thread-safe as its database is.

    Args:
        database: Where the tables live or are made; stays open and is closed by its owner.
        initialize: Make the tables, or bring them up to date. False: use the table that is there, and change nothing.

    Raises:
        TerminalError: The tables were made by a newer version, or are to be used as they are and there are none.
        UnavailableError: The database does not answer.
    """

    def __init__(self, database: Transactions, *, initialize: bool = True) -> None:
        self._database = database
        self._unconfirmed = Unconfirmed(database)
        if initialize:
            prepare(database)
        else:
            probe(database)

    def report(self, trial_name: str, logs: Sequence[MetricLog]) -> None:
        """Append readings; all or none."""
        self.report_all({trial_name: logs})

    def report_all(self, batch: Mapping[str, Sequence[MetricLog]]) -> None:
        """Append readings by trial name in one transaction; all or none.

        When the answer of the commit is lost, the database is asked what became of it: at once, and if that fails when
        the same batch is reported again.
        """
        rows = _rows(batch)
        chunk = list(islice(rows, INSERT_ROWS))
        if not chunk or self._unconfirmed.turned_out_stored(batch):
            return
        receipt = None
        try:
            with self._database.write() as connection:
                while chunk:
                    insert(connection, chunk)
                    chunk = list(islice(rows, INSERT_ROWS))
                receipt = receipt_of(connection)
        except OutcomeUnknownError:
            self._unconfirmed.remember(batch, receipt)
            if not self._unconfirmed.turned_out_stored(batch):
                raise

    def summarize(self, trial_name: str, metrics: Sequence[str]) -> Observation | None:
        """Return min, max and latest of these metrics; None when there is no reading of the first one."""
        wanted = {"trial_name": trial_name, "metrics": list(metrics)}
        with self._database.read() as connection:
            return observation_of(metrics, connection.execute(_VALUES, wanted))

    def delete(self, trial_name: str) -> None:
        """Remove the log of a trial; an unknown trial is fine."""
        removed = DELETE_ROWS
        while removed == DELETE_ROWS:
            with self._database.write() as connection:
                removed = connection.execute(delete_some(connection.dialect.name, trial_name, DELETE_ROWS)).rowcount

    def read(
        self,
        trial_name: str,
        *,
        metric_name: str = "",
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int | None = None,
        cursor: str = "",
    ) -> tuple[list[MetricLog], str]:
        """Return readings in order of time and a cursor to go on from."""
        query = (
            select(table.c.time, table.c.metric_name, table.c.value, table.c.id)
            .where(table.c.trial_name == trial_name, *_narrowed(start, end, cursor))
            .order_by(table.c.time, table.c.id)
            .limit(None if limit is None else limit + 1)
        )
        with self._database.read() as connection:
            if metric_name:
                query = query.where(*metric_is(connection.dialect.name, metric_name))
            rows = connection.execute(query).all()
        more = limit is not None and len(rows) > limit
        rows = rows[:limit]
        found = [MetricLog(time, name, value) for time, name, value, _ in rows]
        return found, f"{format_timestamp(rows[-1].time)}/{rows[-1].id}" if more and rows else ""

    def check(self) -> None:
        """Ask the database for a sign of life.

        Raises:
            UnavailableError: There is none.
        """
        with self._database.read() as connection:
            connection.execute(text("SELECT 1"))


def _rows(batch: Mapping[str, Sequence[MetricLog]]) -> Iterator[dict[str, Any]]:
    for trial_name, readings in batch.items():
        for time, metric_name, value in readings:
            yield {"trial_name": trial_name, "time": time, "metric_name": metric_name, "value": value}


def _narrowed(start: datetime | None, end: datetime | None, cursor: str) -> Iterator[ColumnElement[bool]]:
    if start is not None:
        yield table.c.time >= start
    if end is not None:
        yield table.c.time <= end
    if cursor:
        yield tuple_(table.c.time, table.c.id) > _position(cursor)


def _position(cursor: str) -> tuple[datetime, int]:
    time_text, _, id_text = cursor.partition("/")
    time = parse_time(time_text)
    if time is None or not id_text.isdecimal():
        raise InvalidError(
            [FieldError("cursor", f"{cursor!r} is no cursor of this log", "pass one it returned", "cursor")]
        )
    return time.astimezone(UTC), int(id_text)
