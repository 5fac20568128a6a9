"""The observation log: readings of metrics by trial, in a SQL database.

Belongs here: tables, migrations and queries of the log. Does not belong here: collecting (`metrics_collector`), the
wire (`katib.wire.rpc.db_manager`), or any decision about a trial.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from katib.engine.observations.quick import QuickObservationLog, observation_log
from katib.model.loadable import lazy_names

if TYPE_CHECKING:
    from katib.engine.observations.sql import SqlObservationLog

if not TYPE_CHECKING:  # which knows all names
    __getattr__ = lazy_names(__name__, {"sql": "SqlObservationLog"})  # which needs SQLAlchemy
