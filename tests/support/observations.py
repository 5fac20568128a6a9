"""Observation logs to test against, and a log that fails on demand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from katib.api.metrics import MetricLog
from katib.database import open_database
from katib.observations import MemoryObservationLog, SqlObservationLog
from katib.rpc.db_manager import serve_db_manager
from katib.rpc.db_manager_client import DbManagerClient
from katib.sql_server import address_of, open_sql_server
from tests.support.sql_servers import SqlServerProcess, mysql, postgresql

OpenLog = Callable[[Path], AbstractContextManager[SqlObservationLog]]

T0 = datetime(2024, 3, 4, 17, 55, 8, tzinfo=UTC)


def reading(value: str, *, second: float = 0, name: str = "loss") -> MetricLog:
    return MetricLog(T0 + timedelta(seconds=second), name, value)


@contextmanager
def memory_log(_directory: Path) -> Iterator[MemoryObservationLog]:
    yield MemoryObservationLog()


@contextmanager
def sql_log(directory: Path) -> Iterator[SqlObservationLog]:
    with open_database(directory / "katib.db") as database:
        yield SqlObservationLog(database)


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
    with open_sql_server(address_of(server.url(server.new_database()))) as database:
        yield SqlObservationLog(database)


@contextmanager
def served_log(directory: Path, opened: OpenLog = sql_log) -> Iterator[DbManagerClient]:
    """A client of a DBManager that serves a SQL log on loopback."""
    with opened(directory) as log:
        server = serve_db_manager(log, "127.0.0.1:0")
        client = DbManagerClient(server.address)
        try:
            yield client
        finally:
            client.close()
            server.stop(0)


class FaultyLog:
    """Wraps a log: each call first runs `fault`, which may raise, block or do nothing.

    Differs from a real log in that a refused call leaves no trace in the file.
    """

    def __init__(self, log: MemoryObservationLog | SqlObservationLog) -> None:
        self._log = log
        self.fault: Callable[[Sequence[str]], None] = lambda _trials: None
        self.calls: list[dict[str, int]] = []

    def report(self, trial_name: str, logs: Sequence[MetricLog]) -> None:
        self.report_all({trial_name: logs})

    def report_all(self, batch: Mapping[str, Sequence[MetricLog]]) -> None:
        self.calls.append({name: len(logs) for name, logs in batch.items()})
        self.fault(list(batch))
        self._log.report_all(batch)


def eventually(condition: Callable[[], bool], *, seconds: float = 5.0) -> None:
    """Wait until the condition holds, by polling with a deadline."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        pause.wait(0.001)
