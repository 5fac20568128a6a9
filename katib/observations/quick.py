"""A small report to SQLite, by its driver: SQLAlchemy takes four times as long for the same statements.

It stores exactly what `SqlObservationLog.report` does otherwise; where more is needed than a few rows of one trial, it
says so and changes nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from katib.api.metrics import BatchId, MetricLog
from katib.observations.dialects import bound_row, rows_of
from katib.observations.extremes import Extremes, extremes_of
from katib.observations.tables import observation_extremes, observation_logs, observation_reporters

MOST_READINGS = 100

_REPORTERS, _EXTREMES, _LOGS = observation_reporters.name, observation_extremes.name, observation_logs.name
_STORED = f"SELECT stored_to FROM {_REPORTERS} WHERE trial_name = ? AND reporter = ?"  # noqa: S608 - constants, as below
_NOTE = f"INSERT OR REPLACE INTO {_REPORTERS} (trial_name, reporter, stored_to) VALUES (?, ?, ?)"  # noqa: S608
_KNOWN = f"SELECT metric_name, {', '.join(Extremes._fields)} FROM {_EXTREMES} WHERE trial_name = ?"  # noqa: S608
_KEEP = (
    f"INSERT OR REPLACE INTO {_EXTREMES} (trial_name, metric_name, {', '.join(Extremes._fields)})"  # noqa: S608
    " VALUES (?, ?, ?, ?, ?, ?)"
)
_HAS_READINGS = f"SELECT 1 FROM {_LOGS} WHERE trial_name = ? AND metric_name = ? LIMIT 1"  # noqa: S608
_APPEND = f"INSERT INTO {_LOGS} (trial_name, time, metric_name, value, step) VALUES (?, ?, ?, ?, ?)"  # noqa: S608


class NotQuickError(Exception):
    """A report needs more than is done here."""


def report(driver: sqlite3.Connection, trial_name: str, logs: Sequence[MetricLog], batch: BatchId) -> None:
    """Append readings of a numbered batch once, inside a transaction that writes.

    Raises:
        NotQuickError: The readings of a metric have to be summarized first.
    """
    row = driver.execute(_STORED, (trial_name, batch.reporter)).fetchone()
    stored, end = 0 if row is None else int(row[0]), batch.first + len(logs)
    if row is None or end > stored:
        driver.execute(_NOTE, (trial_name, batch.reporter, end))
    logs = logs[min(len(logs), max(0, stored - batch.first)) :]
    known = {name: Extremes(*extremes) for name, *extremes in driver.execute(_KNOWN, (trial_name,))}
    for name, extremes in extremes_of(logs).items():
        before = known.get(name)
        if before is None and driver.execute(_HAS_READINGS, (trial_name, name)).fetchone() is not None:
            raise NotQuickError
        merged = extremes if before is None else before.with_later(extremes)
        if merged != before:
            driver.execute(_KEEP, (trial_name, name, *merged))
    driver.executemany(_APPEND, [bound_row(row) for row in rows_of({trial_name: logs})])
