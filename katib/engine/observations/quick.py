"""The observation log of a SQLite file, with small reports and summaries on its driver.

A trial of one reading takes 0.13 ms of the processor for its report and its summary; with SQLAlchemy 0.78 ms, a tenth
of the cost of a trial that does nothing (`benchmarks.overhead`). Results are exactly those of `SqlObservationLog`, which
takes over if this file is deleted, and takes all larger reports and summaries now.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from katib.engine.observations.dialects import bound_row, rows_of
from katib.engine.observations.extremes import Extremes, extremes_of
from katib.engine.observations.tables import observation_extremes, observation_logs, observation_reporters
from katib.model.metrics import BatchId, MetricLog

MOST_READINGS = 100
"""In one report."""

MOST_VALUES = 10_000
"""In one summary."""

_REPORTERS, _EXTREMES, _LOGS = observation_reporters.name, observation_extremes.name, observation_logs.name
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
