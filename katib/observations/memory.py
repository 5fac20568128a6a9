"""The observation log in memory, for tests, notebooks and throw-away runs. It forgets everything with its process."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import datetime

from katib.api.metrics import MetricLog
from katib.api.summary import observation_of
from katib.api.types import Observation
from katib.errors import FieldError, InvalidError


class MemoryObservationLog:
    """Fits the same protocols as the SQL one. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: dict[str, list[MetricLog]] = {}

    def report(self, trial_name: str, logs: Sequence[MetricLog]) -> None:
        """Append readings; all or none."""
        self.report_all({trial_name: logs})

    def report_all(self, batch: Mapping[str, Sequence[MetricLog]]) -> None:
        """Append readings by trial name; all or none."""
        with self._lock:
            for trial_name, logs in batch.items():
                self._logs.setdefault(trial_name, []).extend(logs)

    def summarize(self, trial_name: str, metrics: Sequence[str]) -> Observation | None:
        """Return min, max and latest of these metrics; None when there is no reading of the first one."""
        return observation_of(metrics, ((log.name, log.value) for log in self._sorted(trial_name)))

    def delete(self, trial_name: str) -> None:
        """Remove the log of a trial; an unknown trial is fine."""
        with self._lock:
            self._logs.pop(trial_name, None)

    def read(
        self,
        trial_name: str,
        *,
        metric_name: str = "",
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int | None = None,
        cursor: str = "",
    ) -> tuple[list[MetricLog], str]:
        """Return readings in order of time and a cursor to go on from."""
        found = [
            log
            for log in self._sorted(trial_name)
            if (not metric_name or log.name == metric_name)
            and (start is None or log.time >= start)
            and (end is None or log.time <= end)
        ]
        first = _position(cursor)
        last = len(found) if limit is None else first + limit
        return found[first:last], str(last) if last < len(found) else ""

    def check(self) -> None:
        """Do nothing: memory always answers."""

    def _sorted(self, trial_name: str) -> list[MetricLog]:
        with self._lock:
            logs = list(self._logs.get(trial_name, ()))
        return sorted(logs, key=lambda log: log.time)  # stable: equal times stay in the order of their reports


def _position(cursor: str) -> int:
    if not cursor:
        return 0
    if not cursor.isdecimal():
        raise InvalidError(
            [FieldError("cursor", f"{cursor!r} is no cursor of this log", "pass one it returned", "cursor")]
        )
    return int(cursor)
