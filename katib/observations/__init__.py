"""The observation log: readings of metrics by trial, in SQL or in memory.

Belongs here: tables, migrations and queries of the log. Does not belong here: collecting (`metrics_collector`), the
wire (`katib.rpc.db_manager`), or any decision about a trial.
"""

from __future__ import annotations

from katib.observations.memory import MemoryObservationLog
from katib.observations.sql import SqlObservationLog

__all__ = ["MemoryObservationLog", "SqlObservationLog"]
