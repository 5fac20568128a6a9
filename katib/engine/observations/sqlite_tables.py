"""Tables and rows of the log in a SQLite file, without SQLAlchemy: its import takes longer than opening the file.

The tables equal those of `tables.py`, which also migrates older files; a test compares them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from katib.engine.databases.sqlite import Database
from katib.model.loadable import Loadable
from katib.model.metrics import MetricLog

NO_STEP = -1
"""Stored for a reading without step: it sorts before the steps, which begin at 0."""

ROOM = "observation-log"

SCHEMA_VERSION = 5
"""1: as created by Katib; 2: with an index; 3: owners of logs; 4: steps, an index with them, and the companions; 5:
ends of trials, and ordered extremes."""

_MIGRATE: Final[Loadable[Callable[[Database], object]]] = Loadable("katib.engine.observations.tables:prepare")

_OLDER = ("observation_logs", "observation_log_version")
"""A table of Katib, and the versions of earlier releases."""

_CREATE = (
    f"""CREATE TABLE observation_logs (
    trial_name VARCHAR(255) NOT NULL,
    id INTEGER NOT NULL,
    time DATETIME,
    metric_name VARCHAR(255) NOT NULL,
    value TEXT NOT NULL,
    step BIGINT DEFAULT '{NO_STEP}' NOT NULL,
    PRIMARY KEY (id)
)""",
    "CREATE INDEX observation_logs_curves ON observation_logs (trial_name, metric_name, step, time, id)",
    """CREATE TABLE observation_log_access (
    trial_name VARCHAR(255) NOT NULL,
    namespace VARCHAR(63) NOT NULL,
    reports_without_token BOOLEAN NOT NULL,
    reads_without_token BOOLEAN NOT NULL,
    has_ended BOOLEAN DEFAULT '0' NOT NULL,
    PRIMARY KEY (trial_name)
)""",
    """CREATE TABLE observation_log_reporters (
    trial_name VARCHAR(255) NOT NULL,
    reporter VARCHAR(63) NOT NULL,
    stored_to BIGINT NOT NULL,
    PRIMARY KEY (trial_name, reporter)
)""",
    """CREATE TABLE observation_log_extremes (
    trial_name VARCHAR(255) NOT NULL,
    metric_name VARCHAR(255) NOT NULL,
    low DOUBLE NOT NULL,
    low_value TEXT NOT NULL,
    high DOUBLE NOT NULL,
    high_value TEXT NOT NULL,
    PRIMARY KEY (trial_name, metric_name)
)""",
    "CREATE INDEX observation_log_extremes_by_high ON observation_log_extremes (metric_name, high)",
    "CREATE INDEX observation_log_extremes_by_low ON observation_log_extremes (metric_name, low)",
)


def prepare(database: Database) -> None:
    """Create or migrate the tables.

    Raises:
        TerminalError: They were created by a newer version; nothing is changed.
        UnavailableError: The file cannot be read or written now.
    """
    if database.schema_version(ROOM) == SCHEMA_VERSION:
        return
    with database.snapshot() as driver:
        is_older = driver.execute("SELECT 1 FROM sqlite_schema WHERE name IN (?, ?)", _OLDER).fetchone() is not None
    if is_older:
        _MIGRATE.load()(database)
    else:
        database.upgrade(ROOM, SCHEMA_VERSION, lambda driver, _found: _create(driver))


def _create(driver: sqlite3.Connection) -> None:
    for statement in _CREATE:
        driver.execute(statement)


Row = tuple[str, datetime, str, str, int]
"""A stored reading: trial, time, metric, value, step."""

_WITHOUT_ZONE = len("0001-01-01 00:00:00.000000")


def rows_of(batch: Mapping[str, Sequence[MetricLog]]) -> Iterator[Row]:
    for trial_name, readings in batch.items():
        for log in readings:
            yield trial_name, log.time, log.name, log.value, NO_STEP if log.step is None else log.step


def bound_row(row: Row) -> tuple[Any, ...]:
    """Return a row as `katib.engine.observations.tables.UtcTime` stores it in SQLite."""
    trial_name, time, name, value, step = row
    time = time if time.tzinfo is UTC else time.astimezone(UTC)
    return trial_name, time.isoformat(" ", "microseconds")[:_WITHOUT_ZONE], name, value, step
