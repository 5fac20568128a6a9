"""The observation log of a SQLite file, with small reports and summaries on its driver.

A trial of one reading takes 0.13 ms of the processor for its report and its summary; with SQLAlchemy 0.78 ms, a tenth
of the cost of a trial that does nothing (`benchmarks.overhead`). Results are exactly those of `SqlObservationLog`,
which answers all other requests, and is imported with SQLAlchemy for the first of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final, Self, overload

from katib.engine.databases.sqlite import Database
from katib.engine.observations.extremes import Extremes, extremes_of
from katib.engine.observations.sqlite_tables import bound_row, prepare, rows_of
from katib.model.loadable import Deferred, Loadable
from katib.model.metrics import NEW_TRY, BatchId, BestTrial, Change, MetricLog
from katib.model.summary import observation_of
from katib.model.types import Observation

if TYPE_CHECKING:
    from katib.engine.observations.sql import SqlObservationLog
    from katib.engine.observations.tables import Transactions

MOST_READINGS = 100
"""In one report."""

MOST_VALUES = 10_000
"""In one summary."""

_WHOLE: Final[Loadable[Callable[[Database], SqlObservationLog]]] = Loadable(
    "katib.engine.observations.sql:SqlObservationLog"
)

_REPORTERS, _EXTREMES, _LOGS = "observation_log_reporters", "observation_log_extremes", "observation_logs"
_STORED = f"SELECT stored_to FROM {_REPORTERS} WHERE trial_name = ? AND reporter = ?"  # noqa: S608 - constants, as below
_NOTE = f"INSERT OR REPLACE INTO {_REPORTERS} (trial_name, reporter, stored_to) VALUES (?, ?, ?)"  # noqa: S608
_KNOWN = f"SELECT {', '.join(Extremes._fields)} FROM {_EXTREMES} WHERE trial_name = ? AND metric_name = ?"  # noqa: S608
_KEEP = (
    f"INSERT OR REPLACE INTO {_EXTREMES} (trial_name, metric_name, {', '.join(Extremes._fields)})"  # noqa: S608
    " VALUES (?, ?, ?, ?, ?, ?)"
)
_HAS_READINGS = f"SELECT 1 FROM {_LOGS} WHERE trial_name = ? AND metric_name = ? LIMIT 1"  # noqa: S608
_APPEND = f"INSERT INTO {_LOGS} (trial_name, time, metric_name, value, step) VALUES (?, ?, ?, ?, ?)"  # noqa: S608


_VALUES = f"SELECT metric_name, value FROM {_LOGS} WHERE trial_name = ? AND metric_name IN ({{}})"  # noqa: S608
_IN_ORDER = " ORDER BY metric_name, step, time, id LIMIT ?"


class NotQuickError(Exception):
    """A report, or a summary, is too large for this module."""


def report(driver: sqlite3.Connection, trial_name: str, logs: Sequence[MetricLog], batch: BatchId) -> None:
    """Append readings of a numbered batch once, inside a write transaction.

    Raises:
        NotQuickError: The readings of a metric have to be summarized first.
    """
    row = driver.execute(_STORED, (trial_name, batch.reporter)).fetchone()
    stored, end = 0 if row is None else int(row[0]), batch.first + len(logs)
    if row is None or end > stored:
        driver.execute(_NOTE, (trial_name, batch.reporter, end))
    append(driver, {trial_name: logs[min(len(logs), max(0, stored - batch.first)) :]})


def append(driver: sqlite3.Connection, batch: Mapping[str, Sequence[MetricLog]]) -> None:
    """Append readings by trial name, inside a write transaction.

    Raises:
        NotQuickError: The readings of a metric have to be summarized first.
    """
    for trial_name, logs in batch.items():
        for name, extremes in extremes_of(logs).items():
            row = driver.execute(_KNOWN, (trial_name, name)).fetchone()
            before = None if row is None else Extremes(*row)
            if before is None and driver.execute(_HAS_READINGS, (trial_name, name)).fetchone() is not None:
                raise NotQuickError
            merged = extremes if before is None else before.with_later(extremes)
            if merged != before:
                driver.execute(_KEEP, (trial_name, name, *merged))
    driver.executemany(_APPEND, map(bound_row, rows_of(batch)))


def values(driver: sqlite3.Connection, trial_name: str, metrics: Sequence[str]) -> list[tuple[str, str]]:
    """Return names and values of the readings of these metrics, each metric's in the order of its curve.

    Raises:
        NotQuickError: There are too many.
    """
    query = _VALUES.format(", ".join("?" * len(metrics))) + _IN_ORDER
    found = driver.execute(query, (trial_name, *metrics, MOST_VALUES + 1)).fetchall()
    if len(found) > MOST_VALUES:
        raise NotQuickError
    return found


class QuickObservationLog:
    """Observation log in a SQLite file. Implements `katib.model.metrics.ObservationLog`. Thread-safe.

    Args:
        database: The file; closed by its owner.

    Raises:
        TerminalError: The tables were created by a newer version.
        UnavailableError: The file cannot be read or written now.
    """

    def __init__(self, database: Database) -> None:
        prepare(database)
        self._file = database
        self._whole = Deferred(lambda: _WHOLE.load()(database))

    def report(self, trial_name: str, logs: Sequence[MetricLog], batch: BatchId | None = None) -> None:
        """Append readings, those of a numbered batch once; all or none."""
        if batch is not None and 0 < len(logs) <= MOST_READINGS:
            with suppress(NotQuickError):
                with self._file.transaction() as driver:
                    report(driver, trial_name, logs, batch)
                return
        self._whole.get().report(trial_name, logs, batch)

    def report_all(self, batch: Mapping[str, Sequence[MetricLog]]) -> None:
        """Append readings by trial name in one transaction; all or none."""
        begins_try = any(reading.name == NEW_TRY for logs in batch.values() for reading in logs)
        if not begins_try and 0 < sum(map(len, batch.values())) <= MOST_READINGS:
            with suppress(NotQuickError):
                with self._file.transaction() as driver:
                    append(driver, batch)
                return
        self._whole.get().report_all(batch)

    def summarize(self, trial_name: str, metrics: Sequence[str]) -> Observation | None:
        """Return min, max and latest of these metrics; None if the first one has no reading."""
        with suppress(NotQuickError), self._file.snapshot() as driver:
            return observation_of(metrics, values(driver, trial_name, metrics))
        return self._whole.get().summarize(trial_name, metrics)

    def knows_batches(self, _trial_name: str) -> bool:
        """Return True."""
        return True

    def within(self, _namespace: str) -> Self:
        """Return the same log, as trials are known by name alone."""
        return self

    def read(
        self,
        trial_name: str,
        *,
        metric_name: str = "",
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> list[MetricLog]:
        return self._whole.get().read(trial_name, metric_name=metric_name, start=start, end=end)

    def newest(self, trial_name: str, *, limit: int, metric_name: str = "") -> list[MetricLog]:
        return self._whole.get().newest(trial_name, limit=limit, metric_name=metric_name)

    def count(self, trial_name: str, *, metric_name: str = "") -> int:
        return self._whole.get().count(trial_name, metric_name=metric_name)

    def changes(self, cursors: Mapping[str, int], metric_name: str = "") -> list[Change]:
        return self._whole.get().changes(cursors, metric_name)

    def curve(self, trial_name: str, metric_name: str, max_points: int) -> list[MetricLog]:
        return self._whole.get().curve(trial_name, metric_name, max_points)

    def best(self, trial_names: Sequence[str], metric_name: str, *, maximize: bool) -> BestTrial | None:
        return self._whole.get().best(trial_names, metric_name, maximize=maximize)

    def delete(self, trial_name: str) -> None:
        self._whole.get().delete(trial_name)

    def rewind(self, trial_name: str, step: int) -> None:
        self._whole.get().rewind(trial_name, step)


@overload
def observation_log(database: Database) -> QuickObservationLog: ...


@overload
def observation_log(database: Transactions, *, initialize: bool = True) -> SqlObservationLog | QuickObservationLog: ...


def observation_log(database: Transactions, *, initialize: bool = True) -> SqlObservationLog | QuickObservationLog:
    """Return the observation log in a database. Raises as `SqlObservationLog`."""
    if isinstance(database, Database) and initialize:
        return QuickObservationLog(database)
    from katib.engine.observations.sql import SqlObservationLog

    return SqlObservationLog(database, initialize=initialize)
