"""Outcome of a report whose connection broke during the commit.

Each report leaves a receipt before its commit: on PostgreSQL the id of the transaction, whose status the server knows;
on MySQL the id of a row, which exists or not. A server that crashed may assign both ids again, so the readings are
compared, too. A report of unknown outcome is remembered with its receipt. When the same batch is reported again, as a
reporter does with unconfirmed readings, the receipt decides whether it still has to be stored.

It costs one short query per report. Limits: the memory ends with the process, and a caller that times out while the
report succeeds cannot know it either.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs
from sqlalchemy import Connection, bindparam, select, text
from sqlalchemy.types import BigInteger

from katib.engine.observations.tables import Transactions
from katib.engine.observations.tables import observation_logs as table
from katib.errors import UnavailableError
from katib.model.metrics import MetricLog

MAX_REMEMBERED = 10_000
"""The oldest are forgotten: an outage leaves one per concurrent call, and a few per caller that timed out."""

_TRANSACTION = text("SELECT txid_current()")
# After a crash, an id may lie in the future until it is assigned again; asking for its status would be an error.
_STATUS = text("SELECT CASE WHEN :number < txid_current() THEN txid_status(:number) END").bindparams(
    bindparam("number", type_=BigInteger)
)
_FIRST_ROW = text("SELECT LAST_INSERT_ID()")

Batch = Mapping[str, Sequence[MetricLog]]


@dataclass(frozen=True, slots=True)
class TransactionId:
    """Id of a transaction in its database; its meaning depends on the dialect."""

    dialect: str
    number: int


class UnconfirmedReports:
    """Reports of unknown outcome. Thread-safe."""

    def __init__(self, database: Transactions) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._receipts: OrderedDict[bytes, TransactionId] = OrderedDict()

    def remember(self, batch: Batch, receipt: TransactionId | None) -> None:
        """Store the receipt of a report of unknown outcome; without one the outcome cannot be determined."""
        if receipt is not None:
            with self._lock:
                self._receipts[_digest(batch)] = receipt
                while len(self._receipts) > MAX_REMEMBERED:
                    self._receipts.popitem(last=False)

    def turned_out_stored(self, batch: Batch) -> bool:
        """Return whether a batch of unknown outcome was stored; forget it once its outcome is known.

        Raises:
            UnavailableError: The database does not know yet.
        """
        if not self._receipts:
            return False
        key = _digest(batch)
        with self._lock:
            receipt = self._receipts.get(key)
        if receipt is None:
            return False
        with self._database.write() as connection:
            stored = _took_effect(connection, receipt, batch)
        with self._lock:
            return self._receipts.pop(key, None) is receipt and stored


def receipt_of(connection: Connection) -> TransactionId | None:
    """Return the receipt of the current transaction; None for dialects without uncertain commits."""
    question = {"postgresql": _TRANSACTION, "mysql": _FIRST_ROW}.get(connection.dialect.name)
    if question is None:
        return None
    return TransactionId(connection.dialect.name, connection.execute(question).scalar_one())


def _took_effect(connection: Connection, receipt: TransactionId, batch: Batch) -> bool:
    readings = select(table.c.trial_name, table.c.time, table.c.metric_name, table.c.value)
    if receipt.dialect == "postgresql":
        status = connection.execute(_STATUS, {"number": receipt.number}).scalar()
        if status == "in progress":
            raise UnavailableError("the report is still being committed; try again")
        if status != "committed":
            return False
        trial_name, log = next((trial_name, logs[-1]) for trial_name, logs in batch.items() if logs)
        row = (table.c.trial_name == trial_name, table.c.metric_name == log.name, table.c.time == log.time)
        return connection.execute(readings.where(*row, table.c.value == log.value).limit(1)).first() is not None
    # The lock makes the query wait for a transaction that is not yet rolled back or committed.
    found = connection.execute(readings.where(table.c.id == receipt.number).with_for_update()).first()
    return found is not None and any(
        tuple(found[1:]) == (log.time, log.name, log.value) for log in batch.get(found[0], ())
    )


def _digest(batch: Batch) -> bytes:
    digest = hashlib.sha256()
    for trial_name, logs in batch.items():
        digest.update(repr((trial_name, *map(structs.astuple, logs))).encode())
    return digest.digest()
