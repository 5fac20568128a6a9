"""Numbered readings, so that repeated reports are stored once."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from katib.model.metrics import BatchId, MetricLog, ObservationLog


def new_reporter() -> str:
    return uuid4().hex


class NumberedLog:
    """Numbers the readings of one process. For one thread, in order: a failed report is repeated before the next."""

    def __init__(self, log: ObservationLog) -> None:
        self._log = log
        self._reporter = new_reporter()
        self._stored: dict[str, int] = {}

    def report(self, trial_name: str, logs: Sequence[MetricLog]) -> None:
        """Append readings; all or none. Raises as `katib.model.metrics.ObservationLog.report`."""
        first = self._stored.get(trial_name, 0)
        self._log.report(trial_name, logs, BatchId(self._reporter, first))
        self._stored[trial_name] = first + len(logs)
