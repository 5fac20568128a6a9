"""What follows one container of a trial: its output, or what it writes or offers beside it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from katib.api.metrics import MetricLog
from katib.api.types import Trial
from katib.controllers.ports import EventRecorder
from katib.local.pods.monitor import MonitorReport
from metrics_collector.collector import Collector
from metrics_collector.reporter import Reporter
from metrics_collector.sources import Output, Source

_log = logging.getLogger(__name__)


class _TrialMonitor:
    """What every monitor of a trial does with readings.

    Args:
        trial: Whose readings these are.
        collector: Counts them.
        reporter: Stores them.
        events: Told of additional metrics that were not found.
    """

    def __init__(self, trial: Trial, collector: Collector, reporter: Reporter, events: EventRecorder) -> None:
        self._trial = trial
        self._collector = collector
        self._reporter = reporter
        self._events = events

    @property
    def backlogged(self) -> bool:
        """Whether storing is behind."""
        return self._reporter.backlogged

    @property
    def verdict(self) -> str:
        """Why the trial is to be stopped early."""
        return self._collector.verdict

    def _report(self, readings: list[MetricLog]) -> None:
        self._reporter.report(self._trial.name, self._collector.take(readings))

    def _end(self, problem: str, done: Callable[[MonitorReport], None]) -> None:
        """Say what was not found, and call back when all is stored."""
        explanation = self._collector.explanation()
        report = MonitorReport("; ".join(filter(None, (explanation, problem))))
        missing = "; ".join(filter(None, (self._collector.missing_metrics(), problem)))
        if missing and not explanation:
            self._events.record(self._trial, warning=True, reason="MetricsMissing", message=missing)
        self._reporter.flush(self._trial.name, lambda: done(report))


class OutputMonitor(_TrialMonitor):
    """Reads the output of a container."""

    def __init__(
        self, trial: Trial, collector: Collector, reporter: Reporter, events: EventRecorder, output: Output
    ) -> None:
        super().__init__(trial, collector, reporter, events)
        self._output = output

    def feed(self, data: bytes) -> None:
        """Read a chunk of output."""
        self._report(self._output.feed(data))

    def poll(self) -> None:
        """Output comes by itself."""

    def hasten(self) -> None:
        """Output stays when its program goes."""

    def close(self, done: Callable[[MonitorReport], None]) -> None:
        """Read the rest and call back when all is stored."""
        self._report(self._output.finish())
        self._end("", done)


class SourceMonitor(_TrialMonitor):
    """Reads what a container writes or offers beside its output."""

    def __init__(
        self, trial: Trial, collector: Collector, reporter: Reporter, events: EventRecorder, source: Source
    ) -> None:
        super().__init__(trial, collector, reporter, events)
        self._source = source

    def feed(self, data: bytes) -> None:
        """Leave the output alone."""

    def poll(self) -> None:
        """Read what is new, unless storing is behind: others wait on this thread."""
        for readings in self._source.poll():
            self._report(readings)
            if self.backlogged:
                return

    def hasten(self) -> None:
        """Have the source read what goes with the program."""
        self._source.hasten()

    def close(self, done: Callable[[MonitorReport], None]) -> None:
        """Read the rest and call back when all is stored.

        An answer of the program that is under way is part of the rest: it may have ended as soon as it was sent.
        """
        for readings in self._source.poll():
            self._report(readings)
        self._source.settle(lambda: self._finish(done))

    def _finish(self, done: Callable[[MonitorReport], None]) -> None:
        """Report the rest. On a thread of the source nobody else takes an error."""
        try:
            self._report(self._source.finish())
            self._source.close()
        except Exception as error:  # noqa: BLE001 - whatever it is, the log and the report get it
            _log.exception("Monitor failed", extra={"trial": self._trial.name})
            done(MonitorReport(f"reading the metrics failed: {error}"))
        else:
            self._end(self._source.problem, done)
