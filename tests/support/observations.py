"""Observation logs to test against, and a log that fails on demand."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Self

from katib.engine.databases import SqlServer, address_of, open_sql_server
from katib.engine.databases.sqlite import open_database
from katib.engine.observations import SqlObservationLog, observation_log
from katib.engine.observations.tables import metadata
from katib.model.metrics import (
    BEFORE_THE_LAST,
    NEW_TRY,
    BatchId,
    BestTrial,
    Change,
    MetricLog,
    ObservationLog,
    log_of_try,
)
from katib.model.summary import best_of, observation_of
from katib.model.thinning import thinned
from katib.model.types import Observation
from katib.wire.rpc.db_manager import DbManagerServer, serve_db_manager
from katib.wire.rpc.db_manager_client import DbManagerClient
from tests.support.sql_servers import SqlServerProcess, mysql, postgresql

T0 = datetime(2024, 3, 4, 17, 55, 8, tzinfo=UTC)


def reading(value: str, *, second: float = 0, name: str = "loss", step: int | None = None) -> MetricLog:
    return MetricLog(T0 + timedelta(seconds=second), name, value, step)


class MemoryObservationLog:
    """A log in memory; passes the contract of all logs. Differs from a real one in that a call never fails."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: dict[str, list[MetricLog]] = {}
        self._stored_to: dict[tuple[str, str], int] = {}

    def report(self, trial_name: str, logs: Sequence[MetricLog], batch: BatchId | None = None) -> None:
        if batch is not None:
            key, end = (trial_name, batch.reporter), batch.first + len(logs)
            with self._lock:
                stored = self._stored_to.get(key, 0)
                self._stored_to[key] = max(stored, end)
            logs = logs[max(0, stored - batch.first) :]
        self.report_all({trial_name: logs})

    def knows_batches(self, _trial_name: str) -> bool:
        return True

    def report_all(self, batch: Mapping[str, Sequence[MetricLog]]) -> None:
        with self._lock:
            for trial_name, logs in batch.items():
                for log in logs:
                    stored = self._logs.setdefault(trial_name, [])
                    if log.name != NEW_TRY:
                        stored.append(log)
                    elif stored:
                        number = next(n for n in count(1) if log_of_try(trial_name, n) not in self._logs)
                        self._logs[log_of_try(trial_name, number)] = self._logs.pop(trial_name)

    def summarize(self, trial_name: str, metrics: Sequence[str]) -> Observation | None:
        return observation_of(metrics, ((log.name, log.value) for log in self._sorted(trial_name)))

    def delete(self, trial_name: str) -> None:
        with self._lock:
            self._logs.pop(trial_name, None)
            for number in count(1):
                if self._logs.pop(log_of_try(trial_name, number), None) is None:
                    break
            for key in [key for key in self._stored_to if key[0] == trial_name]:
                del self._stored_to[key]

    def rewind(self, trial_name: str, step: int) -> None:
        with self._lock:
            logs = self._logs.get(trial_name, [])
            logs[:] = [log for log in logs if log.step is None or log.step < step]

    def read(
        self, trial_name: str, *, metric_name: str = "", start: datetime | None = None, end: datetime | None = None
    ) -> list[MetricLog]:
        return [
            log
            for log in self._sorted(trial_name)
            if (not metric_name or log.name == metric_name)
            and (start is None or log.time >= start)
            and (end is None or log.time <= end)
        ]

    def newest(self, trial_name: str, *, limit: int, metric_name: str = "") -> list[MetricLog]:
        return self.read(trial_name, metric_name=metric_name)[-limit:]

    def count(self, trial_name: str, *, metric_name: str = "") -> int:
        return len(self.read(trial_name, metric_name=metric_name))

    def curve(self, trial_name: str, metric_name: str, max_points: int) -> list[MetricLog]:
        return thinned(self.read(trial_name, metric_name=metric_name), max_points)

    def best(self, trial_names: Sequence[str], metric_name: str, *, maximize: bool) -> BestTrial | None:
        summaries = {name: self.summarize(name, [metric_name]) for name in trial_names}
        return best_of({name: found.metrics[0] for name, found in summaries.items() if found}, maximize=maximize)

    def changes(self, cursors: Mapping[str, int], metric_name: str = "") -> list[Change]:
        with self._lock:
            numbered = {trial: list(enumerate(self._logs.get(trial, ()), 1)) for trial in cursors}
        wanted = {
            trial: [(number, log) for number, log in logs if metric_name in ("", log.name)]
            for trial, logs in numbered.items()
        }
        return [
            Change(trial, number, log)
            for trial, cursor in cursors.items()
            for number, log in (wanted[trial][-1:] if cursor == BEFORE_THE_LAST else wanted[trial])
            if number > cursor
        ]

    def within(self, _namespace: str) -> Self:
        return self

    def _sorted(self, trial_name: str) -> list[MetricLog]:
        with self._lock:
            logs = list(self._logs.get(trial_name, ()))
        # Stable: readings of one step and time stay in the order of their reports.
        return sorted(logs, key=lambda log: (-1 if log.step is None else log.step, log.time))


@contextmanager
def memory_log(_directory: Path) -> Iterator[MemoryObservationLog]:
    yield MemoryObservationLog()


@contextmanager
def sql_log(directory: Path) -> Iterator[SqlObservationLog]:
    with open_database(directory / "katib.db") as database:
        yield observation_log(database)


@contextmanager
def postgresql_log(_directory: Path) -> Iterator[SqlObservationLog]:
    with _server_log(postgresql()) as log:
        yield log


@contextmanager
def mysql_log(_directory: Path) -> Iterator[SqlObservationLog]:
    with _server_log(mysql()) as log:
        yield log


@contextmanager
def _server_log(server: SqlServerProcess) -> Iterator[SqlObservationLog]:
    database = _kept_database(server)
    log = SqlObservationLog(database)
    with database.write() as connection:
        for table in metadata.sorted_tables:  # what an earlier test left
            connection.execute(table.delete())
    yield log


@cache
def _kept_database(server: SqlServerProcess) -> SqlServer:
    """Return the one database of this server for all tests of logs: to open one takes longer than most of these."""
    database = open_sql_server(address_of(server.url(server.new_database())))
    atexit.register(database.close)
    return database


@contextmanager
def serving_log(log: ObservationLog, **options: Any) -> Iterator[DbManagerServer]:
    """Serve a log on loopback."""
    server = serve_db_manager(log, "127.0.0.1:0", **options)
    try:
        yield server
    finally:
        server.stop(0)


@contextmanager
def served_log(directory: Path) -> Iterator[DbManagerClient]:
    """A client of a DBManager that serves a SQL log on loopback."""
    with sql_log(directory) as log, serving_log(log) as server, closing(DbManagerClient(server.address)) as client:
        yield client


class FaultyLog(MemoryObservationLog):
    """A log in memory whose reports, deletions and newest readings first run `fault`, which may raise, block or return.

    Differs from a real log in that a refused call leaves no trace in the file.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fault: Callable[[Sequence[str]], None] = lambda _trials: None
        self.reports: list[dict[str, int]] = []
        self.deleted: list[str] = []

    def report_all(self, batch: Mapping[str, Sequence[MetricLog]]) -> None:
        self.reports.append({name: len(logs) for name, logs in batch.items()})
        self.fault(list(batch))
        super().report_all(batch)

    def delete(self, trial_name: str) -> None:
        self.fault([trial_name])
        self.deleted.append(trial_name)
        super().delete(trial_name)

    def newest(self, trial_name: str, *, limit: int, metric_name: str = "") -> list[MetricLog]:
        self.fault([trial_name])
        return super().newest(trial_name, limit=limit, metric_name=metric_name)


class Fault:
    """Refuses calls while it is on: all, or those that name a trial."""

    def __init__(self, error: Exception, *, trial: str = "") -> None:
        self.on = True
        self._error = error
        self._trial = trial

    def __call__(self, trials: Sequence[str]) -> None:
        if self.on and (not self._trial or self._trial in trials):
            raise self._error
