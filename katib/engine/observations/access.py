"""Owners of logs, in the database of the log, so that they are shared by all its DB managers."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from sqlalchemy import delete, inspect, select, update

from katib.engine.observations.tables import Transactions
from katib.engine.observations.tables import log_access as table
from katib.model.metrics import LogAccess
from katib.wire.rpc.log_guard import AccessList, MemoryAccessList

_NAMES_AT_ONCE = 1_000

_log = logging.getLogger(__name__)


class SqlAccessList:
    """Owners of logs in a table. Implements `katib.wire.rpc.log_guard.AccessList`. Thread-safe as its database is.

    Args:
        knows_ends: Whether the table has the ends of trials; one of an earlier release does not.
    """

    def __init__(self, database: Transactions, *, knows_ends: bool = True) -> None:
        self._database = database
        self._knows_ends = knows_ends
        self._columns = (
            table.c.namespace,
            table.c.reports_without_token,
            table.c.reads_without_token,
            *([table.c.has_ended] if knows_ends else []),
        )

    def find(self, trial_name: str) -> LogAccess | None:
        with self._database.read() as connection:
            row = connection.execute(select(*self._columns).where(table.c.trial_name == trial_name)).first()
        return None if row is None else LogAccess(*row)

    def find_all(self, trial_names: Collection[str]) -> Mapping[str, LogAccess]:
        columns = (table.c.trial_name, *self._columns)
        names, found = list(trial_names), {}
        with self._database.read() as connection:
            for first in range(0, len(names), _NAMES_AT_ONCE):
                some = names[first : first + _NAMES_AT_ONCE]
                for name, *access in connection.execute(select(*columns).where(table.c.trial_name.in_(some))):
                    found[name] = LogAccess(*access)
        return found

    def keep(self, trial_name: str, access: LogAccess) -> None:
        row = {
            "trial_name": trial_name,
            "namespace": access.namespace,
            "reports_without_token": access.reports_without_token,
            "reads_without_token": access.reads_without_token,
        }
        if self._knows_ends:
            row["has_ended"] = access.has_ended
        with self._database.write() as connection:
            connection.execute(delete(table).where(table.c.trial_name == trial_name))
            connection.execute(table.insert().values(row))

    def end(self, trial_name: str) -> None:
        if self._knows_ends:
            with self._database.write() as connection:
                connection.execute(update(table).where(table.c.trial_name == trial_name).values(has_ended=True))

    def forget(self, trial_name: str) -> None:
        with self._database.write() as connection:
            connection.execute(delete(table).where(table.c.trial_name == trial_name))


def access_list(database: Transactions) -> AccessList:
    """Return the access list of a database; one in memory if the table may not be created."""
    with database.read() as connection:
        inspector = inspect(connection)
        if inspector.has_table(table.name):
            columns = {column["name"] for column in inspector.get_columns(table.name)}
            return SqlAccessList(database, knows_ends=table.c.has_ended.name in columns)
    _log.warning("whose logs are whose is not kept, because there is no table for it", extra={"table": table.name})
    return MemoryAccessList()
