"""Cost of the observation log: storing readings, and querying a long log.

    python -m benchmarks.metrics_store [insert] [questions] [latency] [--readings 10000000] [--only sqlite]

- insert: a million readings of a hundred trials, in reports of 5,000, against the driver's bulk insert of the same rows
  into the same table, whole, in one transaction. Limit: half its speed.
- questions: the best of 10,000 trials, the newest reading, a curve of 1,000 points, with that many readings and with a
  tenth of them. Limit: 20 ms each, and no slower than with a tenth. `SELECT 1` shows the present time of any query.
- latency: fifty trials print ten values a second each; from printing a line to the time at which its reading can be
  read. Limits: 200 ms in the median, 1 s for 99 of 100.

PostgreSQL is started from the packages of this machine, in a directory of its own, if installed.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import text

from benchmarks.support import times_of
from katib.engine.databases import address_of, open_sql_server
from katib.engine.databases.sqlite import open_database
from katib.engine.observations import SqlObservationLog
from katib.engine.observations.tables import Transactions
from katib.model.metrics import MetricLog

START = datetime(2024, 1, 1, tzinfo=UTC)
INSERTED, INSERTED_TRIALS, REPORT = 1_000_000, 100, 5_000
TRIALS = 10_000
RUNS = 20
LEAST_SHARE, MOST_MILLISECONDS = 0.5, 20.0
PRINTING, PER_SECOND, PRINT_SECONDS = 50, 10, 20

Rows = list[tuple[str, datetime, str, str]]


@contextmanager
def sqlite(directory: Path) -> Iterator[Transactions]:
    """Open a new file."""
    with open_database(directory / "katib.db") as database:
        yield database


@contextmanager
def postgresql(_directory: Path) -> Iterator[Transactions]:
    """Open a new database of a server of our own."""
    from tests.support.sql_servers import postgresql as started

    server = started()
    with open_sql_server(address_of(server.url(server.new_database())), answer_seconds=600) as database:
        yield database


DATABASES = {"sqlite": sqlite, "postgresql": postgresql}


def readings_of(count: int, trials: int) -> Iterator[tuple[str, list[MetricLog]]]:
    """Yield the reports of some number of readings."""
    for trial in range(trials):
        logs = (
            MetricLog(START + timedelta(seconds=n), "loss", str(n * 37 % 1009 / 1009), n)
            for n in range(count // trials)
        )
        while report := list(islice(logs, REPORT)):
            yield f"trial-{trial:05}", report


# --- insert -----------------------------------------------------------------------------------------------------------


def insert(name: str) -> None:
    """Compare storing a million readings with the driver's bulk insert."""
    reports = list(readings_of(INSERTED, INSERTED_TRIALS))
    seconds = []
    for store in (raw_insert, our_insert):
        with tempfile.TemporaryDirectory() as directory, DATABASES[name](Path(directory)) as database:
            log = SqlObservationLog(database)
            began = time.perf_counter()
            store(database, log, reports)
            seconds.append(time.perf_counter() - began)
            assert log.count("trial-00007") == INSERTED // INSERTED_TRIALS
    bare, ours = seconds
    share = bare / ours
    print(
        f"insert {INSERTED:,} readings, {name}: {ours:.1f} s, {share:.0%} of the driver's bulk insert ({bare:.1f} s), "
        f"limit {LEAST_SHARE:.0%}{verdict(share >= LEAST_SHARE)}"
    )


def our_insert(_database: Transactions, log: SqlObservationLog, reports: list[tuple[str, list[MetricLog]]]) -> None:
    for trial, logs in reports:
        log.report(trial, logs)


def raw_insert(database: Any, _log: SqlObservationLog, reports: list[tuple[str, list[MetricLog]]]) -> None:
    """Pass all rows to the driver at once."""
    rows = (
        (trial, log.time.replace(tzinfo=None).isoformat(" ", "microseconds"), log.name, log.value, log.step)
        for trial, logs in reports
        for log in logs
    )
    columns = "trial_name, time, metric_name, value, step"
    if hasattr(database, "path"):
        with sqlite3.connect(database.path) as connection:
            connection.executemany(f"INSERT INTO observation_logs ({columns}) VALUES (?, ?, ?, ?, ?)", rows)
        connection.close()
        return
    with database.write() as connection:
        lines = "".join("{}\t{}\t{}\t{}\t{}\n".format(*row) for row in rows)
        cursor = connection.connection.cursor()
        cursor.execute(f"COPY observation_logs ({columns}) FROM STDIN", stream=BytesIO(lines.encode()))
        cursor.close()


# --- questions --------------------------------------------------------------------------------------------------------

_SERIES = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :end) ",
    "postgresql": "WITH n(i) AS (SELECT generate_series(CAST(:first AS bigint), CAST(:end AS bigint) - 1)) ",
}
_TRIAL = {
    "sqlite": "printf('trial-%05d', i / :each)",
    "postgresql": "'trial-' || lpad((i / CAST(:each AS bigint))::text, 5, '0')",
}
_TIME = {
    "sqlite": "'2024-01-01 00:00:00.' || printf('%06d', i % 1000000)",
    "postgresql": "TIMESTAMP '2024-01-01' + mod(i, 1000000) * INTERVAL '1 microsecond'",
}
_VALUE = {
    "sqlite": "CAST((i * 7919 % 1000003) / 1000003.0 AS TEXT)",
    "postgresql": "(mod(i * 7919, 1000003) / 1000003.0::float8)::text",
}


def fill(database: Transactions, name: str, count: int) -> None:
    """Fill a long log by the database itself, and the extremes as reports would have left them."""
    each = count // TRIALS
    part = 1_000_000
    for first in range(0, count, part):
        with database.write() as connection:
            connection.execute(
                text(
                    f"INSERT INTO observation_logs (trial_name, time, metric_name, value, step) {_SERIES[name]}"
                    f"SELECT {_TRIAL[name]}, {_TIME[name]}, 'loss', {_VALUE[name]}, i % :each FROM n"
                    if name == "sqlite"
                    else f"{_SERIES[name]} INSERT INTO observation_logs (trial_name, time, metric_name, value, step) "
                    f"SELECT {_TRIAL[name]}, {_TIME[name]}, 'loss', {_VALUE[name]}, "
                    "mod(i, CAST(:each AS bigint)) FROM n"
                ),
                {"first": first, "end": min(count, first + part), "each": each},
            )
    number = "CAST(value AS REAL)" if name == "sqlite" else "value::float8"
    with database.write() as connection:
        connection.execute(
            text(
                "INSERT INTO observation_log_extremes (trial_name, metric_name, low, low_value, high, high_value) "
                f"SELECT trial_name, 'loss', min({number}), CAST(min({number}) AS TEXT), max({number}), "
                f"CAST(max({number}) AS TEXT) FROM observation_logs GROUP BY trial_name"
            )
        )
        connection.execute(text("ANALYZE"))
    if name == "postgresql":  # else the questions are asked while ten million rows are written to the disk
        from tests.support.sql_servers import postgresql as started

        started().sql("VACUUM ANALYZE", database.address.database)  # type: ignore[attr-defined]  # a server's has it
        started().sql("CHECKPOINT")


def questions(name: str, count: int) -> None:
    """Query with all readings, and with a tenth of them."""
    took: list[dict[str, tuple[float, float]]] = []
    for readings in (count // 10, count):
        with tempfile.TemporaryDirectory() as directory, DATABASES[name](Path(directory)) as database:
            log = SqlObservationLog(database)
            fill(database, name, readings)
            names = [f"trial-{trial:05}" for trial in range(TRIALS)]
            log.report("trial-long", [MetricLog(START, "loss", str(n % 1009), n) for n in range(1_000)])
            asked: dict[str, Callable[[], object]] = {
                "SELECT 1": lambda database=database: _ask_nothing(database),  # type: ignore[misc]
                "best trial": lambda log=log, names=names: log.best(names, "loss", maximize=False),  # type: ignore[misc]
                "newest reading": lambda log=log: log.newest("trial-07007", limit=1, metric_name="loss"),  # type: ignore[misc]
                "curve of 1,000 points": lambda log=log: log.curve("trial-long", "loss", 1_000),  # type: ignore[misc]
                "curve of 100 points": lambda log=log: log.curve("trial-long", "loss", 100),  # type: ignore[misc]
            }
            took.append({question: milliseconds(ask) for question, ask in asked.items()})
    for question, (whole, fastest) in took[1].items():
        tenth, fastest_of_tenth = took[0][question]
        print(
            f"{question}, {count:,} readings of {TRIALS:,} trials, {name}: {whole:.1f} ms, fastest {fastest:.1f} ms "
            f"(with a tenth {tenth:.1f} and {fastest_of_tenth:.1f} ms), limit {MOST_MILLISECONDS:g} ms"
            f"{verdict(whole <= MOST_MILLISECONDS)}"
        )


def _ask_nothing(database: Transactions) -> None:
    with database.read() as connection:
        connection.execute(text("SELECT 1")).all()


def milliseconds(action: Callable[[], object]) -> tuple[float, float]:
    """Return the median time of an action, and the shortest, which other work of the machine affects least."""
    times = times_of(action, RUNS)
    return statistics.median(times) * 1e3, min(times) * 1e3


def verdict(is_met: bool) -> str:
    """Return a note for an exceeded limit."""
    return "" if is_met else "  MISSED"


# --- latency ----------------------------------------------------------------------------------------------------------


def latency() -> None:
    """Follow the output of fifty programs through collector, reporter and log, and poll the stored readings."""
    from katib.wire.rpc.db_manager import serve_db_manager
    from katib.wire.rpc.db_manager_client import DbManagerClient
    from metrics_collector.parsers import parser_for
    from metrics_collector.reporter import Reporter

    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        database = stack.enter_context(open_database(Path(directory) / "katib.db"))
        log = SqlObservationLog(database)
        reporter = Reporter(log.report, report_all=log.report_all)
        server = serve_db_manager(log, "127.0.0.1:0")
        stack.callback(server.stop, 0)
        client = DbManagerClient(server.address)
        stack.callback(client.close)
        over = threading.Event()
        stack.callback(over.set)
        for number in range(PRINTING):
            read, write = os.pipe()
            printing = threading.Thread(target=_print, args=(write, number / PRINTING, over), daemon=True)
            printing.start()
            threading.Thread(
                target=_collect, args=(read, f"t{number}", parser_for, reporter.report), daemon=True
            ).start()
        cursors, delays = {f"t{number}": 0 for number in range(PRINTING)}, []
        end = time.time() + PRINT_SECONDS
        while time.time() < end:
            changes = client.changes(cursors, "printed")
            now = time.time()
            for trial, cursor, reading in changes:
                cursors[trial] = cursor
                delays.append(now - float(reading.value))
            time.sleep(0.01)
    delays.sort()
    median, most = delays[len(delays) // 2] * 1e3, delays[len(delays) * 99 // 100]
    met = median <= 200 and most <= 1
    print(
        f"printed to stored, {PRINTING} trials of {PER_SECOND} values a second, {len(delays):,} readings: median "
        f"{median:.0f} ms, 99 % {most * 1e3:.0f} ms, limits 200 ms and 1 s{verdict(met)}"
    )


def _print(descriptor: int, offset: float, over: threading.Event) -> None:
    over.wait(offset / PER_SECOND)
    while not over.wait(1 / PER_SECOND):
        os.write(descriptor, f"printed={time.time():.6f}\n".encode())


def _collect(descriptor: int, trial: str, parser_of: Any, report: Callable[[str, list[MetricLog]], None]) -> None:
    parser = parser_of("TEXT", ["printed"], [])
    while data := os.read(descriptor, 1 << 16):
        report(trial, parser.feed(data))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", choices=["insert", "questions", "latency", []])
    parser.add_argument("--readings", type=int, default=10_000_000)
    parser.add_argument("--only", choices=list(DATABASES), default=None)
    arguments = parser.parse_args()
    what = arguments.what or ["insert", "questions", "latency"]
    names = [arguments.only] if arguments.only else list(DATABASES)
    for name in names:
        if "insert" in what:
            insert(name)
        if "questions" in what:
            questions(name, arguments.readings)
    if "latency" in what:
        latency()


if __name__ == "__main__":
    main()
