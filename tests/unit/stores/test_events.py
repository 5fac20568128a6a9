"""Notable moments: counted when they repeat, bounded, and never in anybody's way."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from katib.engine.databases.sqlite import Database, open_database
from katib.engine.stores import event_queue, events
from katib.engine.stores.event_queue import EventSubject
from katib.engine.stores.events import EventLog
from tests.support.clock import VirtualClock
from tests.support.waiting import eventually

DEMO = EventSubject("Experiment", "default", "demo", "demo")
TRIAL = EventSubject("Trial", "default", "demo-1", "demo")
OTHER = EventSubject("Experiment", "default", "other", "other")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with open_database(tmp_path / "katib.db", lock_timeout_seconds=0.01) as opened:
        yield opened


@pytest.fixture
def log(database: Database, clock: VirtualClock) -> EventLog:
    return EventLog(database, clock)


def record(log: EventLog, subject: EventSubject = DEMO, reason: str = "R", message: str = "m") -> None:
    log.record(subject, warning=False, reason=reason, message=message)


def told(log: EventLog, subject: EventSubject = DEMO) -> list[tuple[str, str, int]]:
    return [(e.reason, e.message, e.count) for e in log.of(subject)]


@pytest.fixture
def away(tmp_path: Path, database: Database) -> Iterator[sqlite3.Connection]:
    """A lock of another process on the database: no write gets through until it is rolled back."""
    blocker = sqlite3.connect(tmp_path / "katib.db", isolation_level=None, check_same_thread=False)
    blocker.execute("BEGIN IMMEDIATE")
    yield blocker
    blocker.close()


def test_an_event_can_be_read_at_once(log: EventLog, clock: VirtualClock) -> None:
    log.record(TRIAL, warning=True, reason="MetricsUnavailable", message="nothing was printed")
    (event,) = log.of(TRIAL)

    assert (event.subject, event.warning, event.reason) == (TRIAL, True, "MetricsUnavailable")
    assert (event.message, event.count, event.last_time) == ("nothing was printed", 1, clock.now())


def test_an_event_that_repeats_is_counted_and_keeps_its_last_time(log: EventLog, clock: VirtualClock) -> None:
    for _ in range(3):
        record(log)
        clock.advance(1)
    assert told(log) == [("R", "m", 3)]
    record(log)  # the others are in the database by now

    assert told(log) == [("R", "m", 4)]
    assert log.of(DEMO)[0].last_time == clock.now()


def test_another_message_reason_or_object_is_another_event(log: EventLog) -> None:
    record(log)
    record(log, message="n")
    record(log, reason="S")
    record(log, TRIAL)

    assert told(log, TRIAL) == [("R", "m", 1)]
    assert len(log.of(DEMO)) == 4


def test_events_come_in_order_of_their_last_time_and_the_newest_are_kept_by_a_limit(
    log: EventLog, clock: VirtualClock
) -> None:
    for reason in ("a", "b", "c", "a"):
        record(log, reason=reason)
        log.of(DEMO)
        clock.advance(0.5)

    assert [e.reason for e in log.of(DEMO)] == ["b", "c", "a"]
    assert [e.reason for e in log.of(DEMO, limit=2)] == ["c", "a"]


def test_an_experiment_tells_of_its_trials_and_a_trial_of_itself(log: EventLog) -> None:
    record(log, DEMO)
    record(log, TRIAL)
    record(log, OTHER)
    record(log, EventSubject("Experiment", "team", "demo", "demo"))

    assert {e.subject for e in log.of(DEMO)} == {DEMO, TRIAL}
    assert {e.subject for e in log.of(TRIAL)} == {TRIAL}


def test_forgetting_an_experiment_takes_its_trials_along_and_nothing_else(log: EventLog) -> None:
    record(log, DEMO)
    record(log, OTHER)
    log.of(DEMO)
    record(log, TRIAL)  # still waits to be written
    log.forget("default", "demo")

    assert log.of(DEMO) == []
    assert len(log.of(OTHER)) == 1


def test_events_survive_their_process(log: EventLog, database: Database, clock: VirtualClock) -> None:
    log.start()
    record(log)
    log.stop()

    assert told(EventLog(database, clock)) == [("R", "m", 1)]


def test_a_log_that_was_never_started_is_written_by_stopping_it(
    log: EventLog, database: Database, clock: VirtualClock
) -> None:
    record(log)
    log.stop()

    assert told(EventLog(database, clock)) == [("R", "m", 1)]


def test_only_the_newest_rows_are_kept(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_KEPT", 10)
    for i in range(25):
        record(log, message=str(i))
        log.of(DEMO)

    assert [e.message for e in log.of(DEMO)] == [str(i) for i in range(15, 25)]


def test_while_the_database_is_away_events_wait_are_shown_and_come_through(
    log: EventLog, away: sqlite3.Connection, database: Database, clock: VirtualClock
) -> None:
    record(log, reason="first")
    record(log, reason="second")
    assert told(log) == [("first", "m", 1), ("second", "m", 1)]
    record(log, reason="first")
    assert told(log) == [("second", "m", 1), ("first", "m", 2)]
    away.rollback()

    log.of(DEMO)
    assert told(EventLog(database, clock)) == [("second", "m", 1), ("first", "m", 2)]


def test_a_started_log_writes_by_itself_once_the_database_is_back(
    log: EventLog, away: sqlite3.Connection, tmp_path: Path
) -> None:
    def stored() -> int:
        with sqlite3.connect(tmp_path / "katib.db") as reader:
            count: int = reader.execute("select count(*) from events").fetchone()[0]
        reader.close()
        return count

    log.start()
    record(log)
    assert stored() == 0
    away.rollback()
    eventually(stored)
    log.stop()

    assert stored() == 1


def test_while_the_database_is_away_the_oldest_are_dropped(
    log: EventLog, away: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_queue, "MAX_WAITING", 5)
    for i in range(8):
        record(log, message=str(i))
        log.of(DEMO)

    assert [e.message for e in log.of(DEMO)] == ["3", "4", "5", "6", "7"]


def test_stopping_does_not_wait_for_a_database_that_is_away(log: EventLog, away: sqlite3.Connection) -> None:
    log.start()
    record(log)
    stopper = threading.Thread(target=log.stop)
    stopper.start()
    stopper.join(60)

    assert not stopper.is_alive()


def test_no_event_is_lost_or_doubled_when_many_threads_record_and_read(log: EventLog) -> None:
    log.start()

    def work(number: int) -> None:
        for i in range(100):
            record(log, message=f"{number}-{i % 10}")
            if i % 25 == 0:
                log.of(DEMO)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.stop()

    assert {e.message: e.count for e in log.of(DEMO)} == {f"{n}-{i}": 10 for n in range(4) for i in range(10)}
