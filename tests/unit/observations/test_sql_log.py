from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from katib.engine.databases.sqlite import Database, open_database
from katib.engine.observations import SqlObservationLog, observation_log, sql
from katib.errors import Backoff, UnavailableError
from metrics_collector.reporter import Reporter
from tests.support.observations import reading
from tests.support.waiting import eventually


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(tmp_path / "katib.db", lock_timeout_seconds=0.02) as database:
        yield database


@pytest.fixture(params=[SqlObservationLog, observation_log], ids=["plain", "quick"])
def log(request: pytest.FixtureRequest, database: Database) -> SqlObservationLog:
    made: SqlObservationLog = request.param(database)
    return made


def values(log: SqlObservationLog, trial: str = "a") -> list[str]:
    return [entry.value for entry in log.read(trial)]


def fill(database: Database) -> None:
    """Leave the file no room to grow, as a full disk would, until the writer is opened anew after the failure."""
    with database.write() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")


def test_times_are_stored_as_katib_stores_them(database: Database, log: SqlObservationLog) -> None:
    log.report("a", [reading("0.5", second=0.25)])

    with database.read() as connection:
        rows = connection.exec_driver_sql("SELECT trial_name, time, metric_name, value FROM observation_logs").all()
    assert [tuple(row) for row in rows] == [("a", "2024-03-04 17:55:08.250000", "loss", "0.5")]


def test_several_trials_are_stored_in_one_transaction_or_not_at_all(database: Database, log: SqlObservationLog) -> None:
    log.report_all({"a": [reading("1")], "b": [reading("2")]})
    fill(database)

    with pytest.raises(UnavailableError):
        log.report_all({"a": [reading("3")], "b": [reading("4" * 500)] * 1000})

    assert (values(log, "a"), values(log, "b")) == (["1"], ["2"])


def test_a_report_in_several_statements_is_all_or_none(
    database: Database, log: SqlObservationLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "INSERT_ROWS", 10)
    fill(database)

    with pytest.raises(UnavailableError):
        log.report("a", [reading("1" * 500)] * 1000)

    assert values(log) == []


def test_a_large_log_is_removed_in_several_transactions(
    log: SqlObservationLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "DELETE_ROWS", 10)
    for trial in ("a", "b"):
        log.report(trial, [reading("1")] * 25)

    log.delete("a")

    assert (len(values(log, "a")), len(values(log, "b"))) == (0, 25)


def test_reads_of_one_trial_use_the_index(database: Database) -> None:
    SqlObservationLog(database)
    query = "SELECT value FROM observation_logs WHERE trial_name = 'a' AND metric_name = 'b' ORDER BY step, time, id"
    with database.read() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all()

    assert [row[3] for row in plan] == [
        "SEARCH observation_logs USING INDEX observation_logs_curves (trial_name=? AND metric_name=?)"
    ]


def test_while_another_process_holds_the_lock_the_reporter_waits_and_stores_once(
    database: Database, log: SqlObservationLog, caplog: pytest.LogCaptureFixture
) -> None:
    other = sqlite3.connect(database.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError, match="locked"):
        log.report("a", [reading("0")])
    reporter = Reporter(log.report, report_all=log.report_all, pauses=Backoff(0.001, 2.0))
    reporter.report("a", [reading("1"), reading("2")])
    reporter.report("b", [reading("3")])
    eventually(lambda: len(caplog.records) > 1)
    assert values(log) == []

    other.execute("COMMIT")
    other.close()

    assert reporter.close(5) == 0
    assert (values(log, "a"), values(log, "b")) == (["1", "2"], ["3"])


def test_a_full_disk_delays_readings_and_loses_none(
    database: Database, log: SqlObservationLog, caplog: pytest.LogCaptureFixture
) -> None:
    fill(database)
    expected = [f"{number:0500}" for number in range(1000)]
    reporter = Reporter(log.report, report_all=log.report_all, pauses=Backoff(0.001, 2.0), max_batch=100)
    reporter.report("a", [reading(value) for value in expected])

    assert reporter.close(10) == 0
    assert values(log) == expected
    assert {record.message for record in caplog.records} == {"observation log unavailable, trying again"}


@pytest.mark.skipif(shutil.which("mount") is None, reason="needs mount(8)")
def test_a_disk_that_is_really_full_delays_readings_and_loses_none(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        with open_database(disk / "katib.db") as database:
            log = SqlObservationLog(database)
            ballast = disk / "ballast"
            ballast.write_bytes(b"x" * (1 << 19))
            reporter = Reporter(log.report, report_all=log.report_all, pauses=Backoff(0.001, 0.01), max_batch=50)
            expected = [f"{number:0500}" for number in range(400)]
            reporter.report("a", [reading(value) for value in expected])
            with pytest.raises(UnavailableError, match="full"):
                log.report("filler", [reading("x" * 1000)] * 1000)
            ballast.unlink()

            assert reporter.close(20) == 0
            assert values(log) == expected
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_reader_is_not_kept_waiting_by_the_writer(database: Database, log: SqlObservationLog) -> None:
    log.report("a", [reading("1")])
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM observation_logs")

        assert values(log) == ["1"]
    eventually(lambda: values(log) == [])
