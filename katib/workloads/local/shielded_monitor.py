"""A monitor whose failure does not become the failure of the pod it follows."""

from __future__ import annotations

import logging
from collections.abc import Callable

from katib.workloads.ports import Monitor, MonitorReport

_log = logging.getLogger(__name__)


class ShieldedMonitor:
    """Passes everything on until the monitor raises; from then on nobody reads, and the report says why."""

    def __init__(self, monitor: Monitor, name: str) -> None:
        self._monitor = monitor
        self._name = name
        self._failure = ""

    def feed(self, data: bytes) -> None:
        """Pass a chunk on."""
        if not self._failure:
            self._guarded(lambda: self._monitor.feed(data))

    def poll(self) -> None:
        """Pass it on."""
        if not self._failure:
            self._guarded(self._monitor.poll)

    @property
    def backlogged(self) -> bool:
        """Whether to read no more for now; never when nobody reads."""
        return not self._failure and self._monitor.backlogged

    @property
    def verdict(self) -> str:
        """Why the trial is to be stopped early."""
        return "" if self._failure else self._monitor.verdict

    def close(self, done: Callable[[MonitorReport], None]) -> None:
        """Pass it on; after a failure the report is ours."""

        def report(found: MonitorReport) -> None:
            done(MonitorReport(self._failure) if self._failure else found)

        if not self._guarded(lambda: self._monitor.close(report)):
            done(MonitorReport(self._failure))

    def _guarded(self, call: Callable[[], None]) -> bool:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever it is, the log and the report get it
            self._failure = f"reading the metrics failed: {error}"
            _log.exception("Monitor failed", extra={"pod": self._name})
            return False
        return True
