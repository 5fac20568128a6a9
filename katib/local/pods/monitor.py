"""What reads the output of a container, for its metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVarTuple

Ts = TypeVarTuple("Ts")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """What a monitor found, once all of it is stored.

    Attributes:
        explanation: One sentence that explains a missing objective metric; empty when it was found.
    """

    explanation: str = ""


class Monitor(Protocol):
    """Follows one primary container of one pod. All methods but `close`'s callback run on the runner's loop thread."""

    def feed(self, data: bytes) -> None:
        """Take a chunk of the container's output, in any cut. Returns fast; storing happens elsewhere."""

    def poll(self) -> None:
        """Look at the files it follows. Called every 0.2 s or so, and once after the container ended."""

    def hasten(self) -> None:
        """Say that the container is about to be ended: what goes with it is to be read now. Does not wait."""

    @property
    def backlogged(self) -> bool:
        """True while storing is behind and the runner should not read more output."""

    @property
    def verdict(self) -> str:
        """Why the trial is to be stopped early; empty while it may go on."""

    def close(self, done: Callable[[MonitorReport], None]) -> None:
        """Say that no more output comes. `done` is called once, from any thread, when everything read is stored."""


class ShieldedMonitor:
    """Passes everything on until the monitor raises; from then on it is not asked again, and the report says why."""

    def __init__(self, monitor: Monitor, name: str) -> None:
        self._monitor = monitor
        self._name = name
        self._failure = ""

    def feed(self, data: bytes) -> None:
        """Pass a chunk on."""
        if not self._failure:
            self._guarded(self._monitor.feed, data)

    def poll(self) -> None:
        """Pass it on."""
        if not self._failure:
            self._guarded(self._monitor.poll)

    def hasten(self) -> None:
        """Pass it on."""
        if not self._failure:
            self._guarded(self._monitor.hasten)

    @property
    def backlogged(self) -> bool:
        """Whether to read no more for now; never after a failure."""
        return not self._failure and self._monitor.backlogged

    @property
    def verdict(self) -> str:
        """Why the trial is to be stopped early."""
        return "" if self._failure else self._monitor.verdict

    def close(self, done: Callable[[MonitorReport], None]) -> None:
        """Pass it on; after a failure the report is ours."""

        def report(found: MonitorReport) -> None:
            done(MonitorReport(self._failure) if self._failure else found)

        if not self._guarded(self._monitor.close, report):
            done(MonitorReport(self._failure))

    def _guarded(self, call: Callable[[*Ts], None], *arguments: *Ts) -> bool:
        try:
            call(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, the log and the report get it
            self._failure = f"reading the metrics failed: {error}"
            _log.exception("Monitor failed", extra={"pod": self._name})
            return False
        return True
