"""An observation log that says when it cannot store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from katib.api.metrics import MetricLog
from katib.errors import UnavailableError
from katib.observations.sql import SqlObservationLog


class WatchedLog:
    """Stores like the log behind it, and tells of every refusal before the reporter tries again.

    Attributes:
        on_refusal: Takes the names of the trials whose readings wait, and the cause.
    """

    def __init__(self, log: SqlObservationLog) -> None:
        self._log = log
        self.on_refusal: Callable[[Sequence[str], str], None] = lambda _names, _cause: None

    def report(self, trial_name: str, logs: Sequence[MetricLog]) -> None:
        """Append readings of one trial."""
        self.report_all({trial_name: logs})

    def report_all(self, batch: Mapping[str, Sequence[MetricLog]]) -> None:
        """Append readings by trial name; all or none."""
        try:
            self._log.report_all(batch)
        except UnavailableError as error:
            self.on_refusal(list(batch), str(error))
            raise
