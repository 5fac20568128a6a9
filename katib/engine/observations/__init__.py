"""The observation log: readings of metrics by trial, in a SQL database.

Belongs here: tables, migrations and queries of the log. Does not belong here: collecting (`metrics_collector`), the
wire (`katib.wire.rpc.db_manager`), or any decision about a trial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from katib.engine.observations.quick import QuickObservationLog, observation_log

if TYPE_CHECKING:
    from katib.engine.observations.sql import SqlObservationLog

__all__ = ["QuickObservationLog", "SqlObservationLog", "observation_log"]


if not TYPE_CHECKING:  # which knows all names

    def __getattr__(name: str) -> Any:
        """Import the log on SQLAlchemy on demand."""
        if name != "SqlObservationLog":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from katib.engine.observations.sql import SqlObservationLog

        return SqlObservationLog
