"""Serialization of reports of one trial, and storing each reading once, across all DB managers.

A trial is locked for the transaction of a report. So its readings are numbered in the order of their visibility, which
lets a reader ask for those after the last one it knows. SQLite has a single writer anyway.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, insert, select, text, update

from katib.engine.observations.tables import observation_reporters as table
from katib.model.metrics import BatchId

_LOCK_SPACE = 0x6B617469
"""Class of Katib's advisory locks with two keys: other programs of the database have locks, too."""

_LOCK_POSTGRESQL = text(f"SELECT pg_advisory_xact_lock({_LOCK_SPACE}, hashtext(:trial_name))")
_LOCK_MYSQL = text(
    f"INSERT INTO {table.name} (trial_name, reporter, stored_to) VALUES (:trial_name, '', 0) "  # noqa: S608 - a constant
    "ON DUPLICATE KEY UPDATE stored_to = 0"
)
_OF_REPORTER = (table.c.trial_name == bindparam("of_trial"), table.c.reporter == bindparam("of_reporter"))
_STORED = select(table.c.stored_to).where(*_OF_REPORTER)
_UPDATE = update(table).where(*_OF_REPORTER).values(stored_to=bindparam("end"))


def lock(connection: Connection, trial_names: Iterable[str]) -> None:
    """Lock the reporters of these trials until the transaction ends."""
    statement = {"postgresql": _LOCK_POSTGRESQL, "mysql": _LOCK_MYSQL}.get(connection.dialect.name)
    if statement is not None:
        for name in sorted(trial_names):
            connection.execute(statement, {"trial_name": name})


def take(connection: Connection, trial_name: str, batch: BatchId, count: int) -> int:
    """Record that a batch is stored; return the number of its readings that were stored before.

    The caller holds the lock of the trial, and stores the others in the same transaction.
    """
    key = {"of_trial": trial_name, "of_reporter": batch.reporter}
    stored = connection.execute(_STORED, key).scalar()
    end = batch.first + count
    if stored is None:
        row = {"trial_name": trial_name, "reporter": batch.reporter, "stored_to": end}
        connection.execute(insert(table), row)
    elif end > stored:
        connection.execute(_UPDATE, {**key, "end": end})
    return min(count, max(0, (stored or 0) - batch.first))
