"""The observation log: readings of metrics by trial, in a SQL database.

Belongs here: tables, migrations and queries of the log. Does not belong here: collecting (`metrics_collector`), the
wire (`katib.wire.rpc.db_manager`), or any decision about a trial.
"""

from __future__ import annotations

from katib.engine.observations.quick import observation_log
from katib.engine.observations.sql import SqlObservationLog

__all__ = ["SqlObservationLog", "observation_log"]
