"""Events of objects, stored beside the objects.

Recording never delays or fails a controller: events wait in memory and are written a few times a second, all in one
transaction. While the database does not answer, the oldest are dropped once too many wait. A repeated event (same
object, reason and message) is counted, not listed again.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from katib.engine.databases.sqlite import Database
from katib.engine.runtime.clock import Clock
from katib.engine.stores.event_queue import Event, EventQueue, EventSubject, StoredEvent
from katib.errors import KatibError

SCHEMA_VERSION = 1
FLUSH_SECONDS = 0.25
MAX_KEPT = 20_000
"""Rows kept in the file; the oldest are deleted. Enough for an experiment with thousands of trials."""

_TABLE = """
    CREATE TABLE events (
        id INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        experiment TEXT NOT NULL,
        warning BOOLEAN NOT NULL,
        reason TEXT NOT NULL,
        message TEXT NOT NULL,
        first_time TEXT NOT NULL,
        last_time TEXT NOT NULL,
        times INTEGER NOT NULL
    )
"""
_IDENTITY = "namespace, experiment, kind, name, reason, message"
_INDEX = f"CREATE UNIQUE INDEX events_identity ON events ({_IDENTITY})"
_UPSERT = f"""
    INSERT INTO events (kind, namespace, name, experiment, warning, reason, message, first_time, last_time, times)
    VALUES (:kind, :namespace, :name, :experiment, :warning, :reason, :message, :first_time, :last_time, :times)
    ON CONFLICT ({_IDENTITY}) DO UPDATE SET times = times + excluded.times, last_time = excluded.last_time
"""  # noqa: S608 - of constants
_RENAME = """
    UPDATE OR REPLACE events SET experiment = :name, name = CASE name WHEN :experiment THEN :name ELSE name END
    WHERE namespace = :namespace AND experiment = :experiment
"""
_DELETE_OLD = "DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - :kept"
_SELECT = """
    SELECT kind, namespace, name, experiment, warning, reason, message, first_time, last_time, times FROM events
    WHERE {} ORDER BY last_time DESC, id DESC LIMIT :limit
"""
_SELECT_NEWEST = _SELECT.format("(:namespace IS NULL OR namespace = :namespace) AND last_time > :since")
_SELECT_OF_EXPERIMENT = _SELECT.format("namespace = :namespace AND experiment = :name")
_SELECT_OF_OBJECT = _SELECT.format("namespace = :namespace AND kind = :kind AND name = :name")


class EventLog:
    """Records and returns events. Thread-safe."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._waiting: EventQueue[EventSubject] = EventQueue()
        self._changed = threading.Condition()
        self._writing = threading.Lock()  # readers and `forget` wait for a batch in progress
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        database.upgrade("events", SCHEMA_VERSION, _migrate)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write the waiting events and end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._flush()

    def record(self, subject: EventSubject, *, warning: bool, reason: str, message: str) -> None:
        """Record an event. Returns at once and never fails."""
        now = self._clock.now()
        with self._changed:
            if self._waiting.add(Event(subject, warning, reason, message, now, now)):
                self._changed.notify_all()

    def of(self, subject: EventSubject, *, limit: int = 500) -> Sequence[StoredEvent]:
        """Return the newest events of an object, oldest first; for an Experiment including its dependents'."""
        self._flush()
        query = _SELECT_OF_EXPERIMENT if subject.kind == "Experiment" else _SELECT_OF_OBJECT
        wanted = {"kind": subject.kind, "namespace": subject.namespace, "name": subject.name, "limit": limit}
        with self._database.snapshot() as driver:
            found = [_event(row) for row in driver.execute(query, wanted)]
        return [*found[::-1], *self._unwritten(subject)]

    def newest(self, namespace: str | None = None, since: datetime | None = None) -> Sequence[StoredEvent]:
        """Return the events of all objects of a namespace, or of all for None, oldest first.

        Args:
            since: Restricts the result to events after this time, repetitions included.
        """
        self._flush()
        after = "" if since is None else since.astimezone(UTC).isoformat()
        wanted = {"namespace": namespace, "since": after, "limit": MAX_KEPT}
        with self._database.snapshot() as driver:
            return [_event(row) for row in driver.execute(_SELECT_NEWEST, wanted)][::-1]

    def forget(self, namespace: str, experiment: str) -> None:
        """Remove the events of a deleted experiment, and of its dependents."""
        with self._writing:
            with self._changed:
                experiments = EventSubject("Experiment", namespace, experiment, experiment)
                self._waiting.take(event for event in self._waiting.all() if _belongs(event.subject, experiments))
            forgotten = (namespace, experiment)
            with self._database.transaction() as driver:
                driver.execute("DELETE FROM events WHERE namespace = ? AND experiment = ?", forgotten)

    def rename(self, namespace: str, experiment: str, name: str) -> None:
        """Move the events of an experiment, and of its dependents, to the experiment of another name."""
        self._flush()
        values = {"namespace": namespace, "experiment": experiment, "name": name}
        with self._database.transaction() as driver:
            driver.execute(_RENAME, values)

    def _unwritten(self, subject: EventSubject) -> list[StoredEvent]:
        """Return the events of an object that the database has not accepted, as while its disk is full."""
        with self._changed:
            waiting = self._waiting.all()
        return [event for event in waiting if _belongs(event.subject, subject)]

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if self._closing:
                    return
                self._changed.wait_for(lambda: self._closing, timeout=FLUSH_SECONDS)
            self._flush()

    def _flush(self) -> None:
        with self._writing:
            with self._changed:
                batch = self._waiting.take_all()
            if not batch:
                return
            try:
                with self._database.transaction() as driver:
                    driver.executemany(_UPSERT, map(_row, batch))
                    driver.execute(_DELETE_OLD, {"kept": MAX_KEPT})
            except KatibError:
                with self._changed:
                    self._waiting.put_back(batch)


def _belongs(found: EventSubject, wanted: EventSubject) -> bool:
    if wanted.kind == "Experiment":
        return (found.namespace, found.experiment) == (wanted.namespace, wanted.name)
    return (found.kind, found.namespace, found.name) == (wanted.kind, wanted.namespace, wanted.name)


def _migrate(driver: sqlite3.Connection, _found: int) -> None:
    driver.execute(_TABLE)
    driver.execute(_INDEX)


def _event(row: tuple[Any, ...]) -> StoredEvent:
    kind, namespace, name, experiment, warning, reason, message, first, last, times = row
    subject = EventSubject(kind, namespace, name, experiment)
    first_time, last_time = datetime.fromisoformat(first), datetime.fromisoformat(last)
    return Event(subject, bool(warning), reason, message, first_time, last_time, times)


def _row(event: StoredEvent) -> dict[str, object]:
    return {
        "kind": event.subject.kind,
        "namespace": event.subject.namespace,
        "name": event.subject.name,
        "experiment": event.subject.experiment,
        "warning": event.warning,
        "reason": event.reason,
        "message": event.message,
        "first_time": event.first_time.astimezone(UTC).isoformat(),
        "last_time": event.last_time.astimezone(UTC).isoformat(),
        "times": event.count,
    }
