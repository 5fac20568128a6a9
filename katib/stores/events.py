"""Notable moments of objects, kept beside the objects.

Recording must never slow down or fail a controller: events wait in memory and are written a few times a second, all in
one transaction. When the database does not answer they are dropped, oldest first, once too many wait. An event that
repeats (same object, reason and message) is counted, not listed again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    bindparam,
    delete,
    func,
    select,
)
from sqlalchemy.dialects.sqlite import insert

from katib.database import Database
from katib.errors import KatibError
from katib.runtime.clock import Clock

SCHEMA_VERSION = 1
FLUSH_SECONDS = 0.25
MAX_WAITING = 2_000
MAX_KEPT = 20_000
"""Rows kept in the file; old ones go first. Enough for the whole story of an experiment with thousands of trials."""

_metadata = MetaData()
_events = Table(
    "events",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("kind", String(63), nullable=False),
    Column("namespace", String(253), nullable=False),
    Column("name", String(253), nullable=False),
    Column("experiment", String(253), nullable=False),
    Column("warning", Boolean, nullable=False),
    Column("reason", String(255), nullable=False),
    Column("message", Text, nullable=False),
    Column("first_time", String(40), nullable=False),
    Column("last_time", String(40), nullable=False),
    Column("times", Integer, nullable=False),
)


@dataclass(frozen=True, slots=True)
class EventSubject:
    """What an event is about.

    Attributes:
        experiment: Name of the experiment it belongs to, so that an experiment's events include its trials'.
    """

    kind: str
    namespace: str
    name: str
    experiment: str


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event, with how often and when it was last seen."""

    subject: EventSubject
    warning: bool
    reason: str
    message: str
    time: datetime
    count: int = 1

    @property
    def identity(self) -> tuple[EventSubject, str, str]:
        """What makes two events the same."""
        return self.subject, self.reason, self.message


class EventLog:
    """Records and returns events. Safe to call from any thread."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._waiting: dict[tuple[EventSubject, str, str], StoredEvent] = {}
        self._changed = threading.Condition()
        self._writing = threading.Lock()  # who reads or forgets waits for a batch that is on its way
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        database.upgrade("events", SCHEMA_VERSION, _migrate)

    def start(self) -> None:
        """Start writing."""
        self._thread.start()

    def stop(self) -> None:
        """Write what waits and end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._flush()

    def record(self, subject: EventSubject, *, warning: bool, reason: str, message: str) -> None:
        """Note that something happened. Returns at once and never fails."""
        event = StoredEvent(subject, warning, reason, message, self._clock.now())
        with self._changed:
            known = self._waiting.pop(event.identity, None)
            if known is not None:
                event = replace(event, count=known.count + 1)
            self._waiting[event.identity] = event
            while len(self._waiting) > MAX_WAITING:
                del self._waiting[next(iter(self._waiting))]
            if len(self._waiting) == 1:
                self._changed.notify_all()

    def of(self, subject: EventSubject, *, limit: int = 500) -> Sequence[StoredEvent]:
        """Return the newest events of an object, oldest first; for an Experiment those of what belongs to it too."""
        self._flush()
        query = select(_events).where(_events.c.namespace == subject.namespace)
        if subject.kind == "Experiment":
            query = query.where(_events.c.experiment == subject.name)
        else:
            query = query.where(_events.c.kind == subject.kind, _events.c.name == subject.name)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(_events.c.last_time.desc(), _events.c.id.desc()).limit(limit))
            found = [
                StoredEvent(
                    EventSubject(row.kind, row.namespace, row.name, row.experiment),
                    row.warning,
                    row.reason,
                    row.message,
                    datetime.fromisoformat(row.last_time),
                    row.times,
                )
                for row in rows
            ]
        return [*found[::-1], *self._unwritten(subject)]

    def forget(self, namespace: str, experiment: str) -> None:
        """Remove the events of an experiment that is deleted, and of all that belonged to it."""
        with self._writing:
            with self._changed:
                mine = [
                    key for key in self._waiting if (key[0].namespace, key[0].experiment) == (namespace, experiment)
                ]
                for key in mine:
                    del self._waiting[key]
            with self._database.write() as connection:
                connection.execute(
                    delete(_events).where(_events.c.namespace == namespace, _events.c.experiment == experiment)
                )

    def _unwritten(self, subject: EventSubject) -> list[StoredEvent]:
        """Return the events of an object that the database has not taken, as while its disk is full."""
        with self._changed:
            waiting = list(self._waiting.values())
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
                batch, self._waiting = list(self._waiting.values()), {}
            if not batch:
                return
            try:
                with self._database.write() as connection:
                    _store(connection, batch)
            except KatibError:
                self._put_back(batch)

    def _put_back(self, batch: Sequence[StoredEvent]) -> None:
        with self._changed:
            newer, self._waiting = self._waiting, {}
            for event in (*batch, *newer.values()):
                known = self._waiting.pop(event.identity, None)
                count = event.count + (known.count if known else 0)
                self._waiting[event.identity] = replace(event, count=count)


def _belongs(found: EventSubject, wanted: EventSubject) -> bool:
    if wanted.kind == "Experiment":
        return (found.namespace, found.experiment) == (wanted.namespace, wanted.name)
    return (found.kind, found.namespace, found.name) == (wanted.kind, wanted.namespace, wanted.name)


def _migrate(connection: Connection, _found: int) -> None:
    _metadata.create_all(connection)
    connection.exec_driver_sql(
        "CREATE UNIQUE INDEX events_identity ON events (namespace, experiment, kind, name, reason, message)"
    )


_IDENTITY = ("namespace", "experiment", "kind", "name", "reason", "message")
_upsert = insert(_events).on_conflict_do_update(
    index_elements=list(_IDENTITY),
    set_={"times": _events.c.times + bindparam("again"), "last_time": bindparam("seen")},
)


def _store(connection: Connection, batch: Sequence[StoredEvent]) -> None:
    connection.execute(_upsert, [_row(event) for event in batch])
    newest = connection.execute(select(func.max(_events.c.id))).scalar_one()
    connection.execute(delete(_events).where(_events.c.id <= newest - MAX_KEPT))


def _row(event: StoredEvent) -> dict[str, object]:
    time = event.time.astimezone(UTC).isoformat()
    return {
        "kind": event.subject.kind,
        "namespace": event.subject.namespace,
        "name": event.subject.name,
        "experiment": event.subject.experiment,
        "warning": event.warning,
        "reason": event.reason,
        "message": event.message,
        "first_time": time,
        "last_time": time,
        "times": event.count,
        "again": event.count,
        "seen": time,
    }
