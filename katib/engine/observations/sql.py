"""The observation log in a SQL database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import count, islice, pairwise
from typing import TYPE_CHECKING, Final, Self

from sqlalchemy import Connection, func, select

from katib.engine.observations import reporting, stored_extremes
from katib.engine.observations.dialects import delete_some, fetch_readings, insert, metric_is
from katib.engine.observations.sqlite_tables import rows_of
from katib.engine.observations.tables import COMPANIONS, Transactions, observation_extremes, prepare, probe
from katib.engine.observations.tables import observation_logs as table
from katib.errors import OutcomeUnknownError
from katib.model.loadable import Deferred, Loadable
from katib.model.metrics import NEW_TRY, BatchId, BestTrial, Change, MetricLog, log_of_try
from katib.model.summary import observation_of, observation_with
from katib.model.thinning import thinned
from katib.model.types import Metric, Observation

if TYPE_CHECKING:
    from katib.engine.observations.confirmation import TransactionId, UnconfirmedReports
    from katib.engine.observations.statements import Statements

_STATEMENTS: Final[Loadable[type[Statements]]] = Loadable("katib.engine.observations.statements:Statements")
_UNCONFIRMED: Final[Loadable[type[UnconfirmedReports]]] = Loadable(
    "katib.engine.observations.confirmation:UnconfirmedReports"
)
_RECEIPT: Final[Loadable[Callable[[Connection], TransactionId | None]]] = Loadable(
    "katib.engine.observations.confirmation:receipt_of"
)

INSERT_ROWS = 10_000
"""Rows passed to the driver at once; bounds memory within the single transaction."""

DELETE_ROWS = 50_000
"""Rows removed in one transaction: a log of millions must not hold the writers' lock for seconds."""


FOLDED_ROWS = 10_000
"""Readings up to which a log is folded or thinned here: for fewer, the database's computation would take longer."""


class SqlObservationLog:
    """Observation log in a SQL database. Implements `katib.model.metrics.ObservationLog`.

    Thread-safe as its database is.

    Args:
        database: Database of the tables; closed by its owner.
        initialize: Whether to create or migrate the tables. False to use the existing table, without changes.

    Raises:
        TerminalError: The tables were created by a newer version, or do not exist and may not be created.
        UnavailableError: The database does not answer.
    """

    def __init__(self, database: Transactions, *, initialize: bool = True) -> None:
        self._database = database
        self._unconfirmed: Deferred[UnconfirmedReports] = Deferred(lambda: _UNCONFIRMED.load()(database))
        self._layout = prepare(database) if initialize else probe(database)

    @cached_property
    def _statements(self) -> Statements:
        return _STATEMENTS.load()(self._layout)

    def report(self, trial_name: str, logs: Sequence[MetricLog], batch: BatchId | None = None) -> None:
        """Append readings, those of a numbered batch once; all or none."""
        if batch is None or not self._layout.has_companions:
            self.report_all({trial_name: logs})
            return
        if not logs:
            return
        with self._database.write() as connection:
            reporting.lock(connection, [trial_name])
            known = reporting.take(connection, trial_name, batch, len(logs))
            if known < len(logs):
                self._append(connection, {trial_name: logs[known:] if known else logs})

    def knows_batches(self, _trial_name: str) -> bool:
        """Return whether numbers of batches are stored."""
        return self._layout.has_companions

    def report_all(self, batch: Mapping[str, Sequence[MetricLog]]) -> None:
        """Append readings by trial name in one transaction; all or none.

        If the response to the commit is lost, the database is asked for its outcome: at once, and if that fails when
        the same batch is reported again.
        """
        batch = {trial_name: logs for trial_name, logs in batch.items() if logs}
        if not batch:
            return
        if any(reading.name == NEW_TRY for logs in batch.values() for reading in logs):
            self._begin_tries(batch)
            return
        if self._unconfirmed.made is not None and self._unconfirmed.made.turned_out_stored(batch):
            return
        receipt = None
        try:
            with self._database.write() as connection:
                if self._layout.has_companions:
                    reporting.lock(connection, batch)
                self._append(connection, batch)
                receipt = _RECEIPT.load()(connection)
        except OutcomeUnknownError:
            self._unconfirmed.get().remember(batch, receipt)
            if not self._unconfirmed.get().turned_out_stored(batch):
                raise

    def _begin_tries(self, batch: Mapping[str, Sequence[MetricLog]]) -> None:
        """Append readings, and set aside a trial's readings before the last start of an attempt."""
        with self._database.write() as connection:
            if self._layout.has_companions:
                reporting.lock(connection, batch)
            for trial_name, logs in batch.items():
                begins = [place for place, reading in enumerate(logs) if reading.name == NEW_TRY]
                for first, end in pairwise([0, *begins, len(logs)]):
                    if first in begins:
                        self._set_aside(connection, trial_name)
                    readings = [reading for reading in logs[first:end] if reading.name != NEW_TRY]
                    if readings:
                        self._append(connection, {trial_name: readings})

    def _set_aside(self, connection: Connection, trial_name: str) -> None:
        """Move the readings of a trial, if any, to the log of its next earlier attempt."""
        number = next(n for n in count(1) if not _has_readings(connection, log_of_try(trial_name, n)))
        moved = table.update().where(table.c.trial_name == trial_name)
        connection.execute(moved.values(trial_name=log_of_try(trial_name, number)))
        if self._layout.has_companions:  # recomputed by the next report
            connection.execute(observation_extremes.delete().where(observation_extremes.c.trial_name == trial_name))

    def _append(self, connection: Connection, batch: Mapping[str, Sequence[MetricLog]]) -> None:
        if self._layout.has_companions:
            stored_extremes.keep(connection, batch, self._summary)
        rows = rows_of(batch)
        while chunk := list(islice(rows, INSERT_ROWS)):
            insert(connection, chunk, has_steps=self._layout.has_steps)

    def summarize(self, trial_name: str, metrics: Sequence[str]) -> Observation | None:
        """Return min, max and latest of these metrics; None if the first one has no reading."""
        with self._database.read() as connection:
            return self._summarize(connection, trial_name, metrics)

    def _summarize(self, connection: Connection, trial_name: str, metrics: Sequence[str]) -> Observation | None:
        from katib.engine.observations.summaries import NotComputableError, metric_summary

        some = connection.execute(*self._statements.some_values(trial_name, metrics, FOLDED_ROWS + 1)).all()
        if len(some) <= FOLDED_ROWS:
            return observation_of(metrics, map(tuple, some))
        try:
            curve, names = self._statements.curve, dict.fromkeys(metrics)
            known = stored_extremes.of_trial(connection, trial_name) if self._keeps_extremes(connection) else {}
            found = [metric_summary(connection, trial_name, name, curve, known.get(name)) for name in names]
        except NotComputableError:
            return observation_of(
                metrics, map(tuple, connection.execute(*self._statements.values(trial_name, metrics)))
            )
        return observation_with(metrics, filter(None, found))

    def _keeps_extremes(self, connection: Connection) -> bool:
        """Return whether no other program writes to the log: Katib's DB manager never writes to SQLite."""
        return self._layout.has_companions and connection.dialect.name == "sqlite"

    def _summary(self, connection: Connection, trial_name: str, metric: str) -> Metric | None:
        found = self._summarize(connection, trial_name, [metric])
        return None if found is None else found.metrics[0]

    def best(self, trial_names: Sequence[str], metric_name: str, *, maximize: bool) -> BestTrial | None:
        """Return the trial with the best reading."""
        from katib.engine.observations.best import best_of

        with self._database.read() as connection:
            kept = self._layout.has_companions
            return best_of(connection, trial_names, metric_name, self._summary, maximize=maximize, is_kept=kept)

    def curve(self, trial_name: str, metric_name: str, max_points: int) -> list[MetricLog]:
        """Return a curve thinned to a number of readings."""
        from katib.engine.observations.summaries import thinned_curve

        with self._database.read() as connection:
            of_metric = [table.c.trial_name == trial_name, *metric_is(connection.dialect.name, metric_name)]
            query = self._statements.readings.where(*of_metric).order_by(*self._statements.curve)
            few = max(max_points, FOLDED_ROWS)
            rows = fetch_readings(connection, query.limit(few + 1))
            if len(rows) <= few:
                return thinned(self._statements.logs(rows), max_points)
            query = thinned_curve(self._statements, connection.dialect.name, of_metric, max_points)
            return self._statements.logs(fetch_readings(connection, query))

    def delete(self, trial_name: str) -> None:
        """Remove the log of a trial, with those of earlier attempts; an unknown trial is not an error."""
        self._delete(trial_name)
        for number in count(1):
            with self._database.read() as connection:
                if not _has_readings(connection, log_of_try(trial_name, number)):
                    return
            self._delete(log_of_try(trial_name, number))

    def _delete(self, trial_name: str) -> None:
        removed = DELETE_ROWS
        while removed == DELETE_ROWS:
            with self._database.write() as connection:
                removed = connection.execute(delete_some(connection.dialect.name, trial_name, DELETE_ROWS)).rowcount
                if removed < DELETE_ROWS and self._layout.has_companions:
                    for companion in COMPANIONS:
                        connection.execute(companion.delete().where(companion.c.trial_name == trial_name))

    def rewind(self, trial_name: str, step: int) -> None:
        """Remove the readings from a step on: they are reported again."""
        with self._database.write() as connection:
            if self._layout.has_companions:
                reporting.lock(connection, [trial_name])
                # Recomputed by the next report.
                connection.execute(observation_extremes.delete().where(observation_extremes.c.trial_name == trial_name))
            connection.execute(table.delete().where(table.c.trial_name == trial_name, table.c.step >= step))

    def read(
        self,
        trial_name: str,
        *,
        metric_name: str = "",
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> list[MetricLog]:
        """Return readings in the order of their curve."""
        query = self._statements.readings.where(table.c.trial_name == trial_name).order_by(*self._statements.curve)
        if start is not None:
            query = query.where(table.c.time >= start)
        if end is not None:
            query = query.where(table.c.time <= end)
        with self._database.read() as connection:
            if metric_name:
                query = query.where(*metric_is(connection.dialect.name, metric_name))
            return self._statements.logs(connection.execute(query))

    def newest(self, trial_name: str, *, limit: int, metric_name: str = "") -> list[MetricLog]:
        """Return the last readings of the curve, in its order.

        The index orders the readings of a trial by metric. So the newest of all metrics are merged from the newest of
        each: a further index, without the metric, would slow every report.
        """
        newest = self._statements.newest(limit).where(table.c.trial_name == trial_name)
        with self._database.read() as connection:
            if metric_name:
                rows = list(connection.execute(newest.where(*metric_is(connection.dialect.name, metric_name))))
            else:
                rows = []
                for name in _metric_names(connection, trial_name):
                    rows += connection.execute(newest.where(table.c.metric_name == name))
        rows.sort(key=lambda row: (row.step, row.time, row.id))
        return self._statements.logs(rows[-limit:])

    def count(self, trial_name: str, *, metric_name: str = "") -> int:
        query = select(func.count()).select_from(table).where(table.c.trial_name == trial_name)
        with self._database.read() as connection:
            if metric_name:
                query = query.where(*metric_is(connection.dialect.name, metric_name))
            return int(connection.execute(query).scalar_one())

    def changes(self, cursors: Mapping[str, int], metric_name: str = "") -> list[Change]:
        """Return the readings after these cursors."""
        with self._database.read() as connection:
            return list(self._statements.changes(connection, cursors, metric_name))

    def within(self, _namespace: str) -> Self:
        """Return the same log, as trials are known by name alone."""
        return self


def _has_readings(connection: Connection, trial_name: str) -> bool:
    return connection.execute(select(table.c.id).where(table.c.trial_name == trial_name).limit(1)).first() is not None


def _metric_names(connection: Connection, trial_name: str) -> Iterator[str]:
    """Yield the metrics of a trial from the index, one lookup each, whatever the number of readings.

    Names that the table compares as equal, as Katib's on MySQL does with `Loss` and `loss`, are yielded once.
    """
    first = select(func.min(table.c.metric_name)).where(table.c.trial_name == trial_name)
    name = connection.execute(first).scalar()
    while name is not None:
        yield name
        name = connection.execute(first.where(table.c.metric_name > name)).scalar()
