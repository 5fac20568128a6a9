"""From a pod's output to the observation log: one collector for each primary container."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from katib.api.metrics import MetricLog
from katib.api.types import CollectorKind, ObjectiveSpec, Trial
from katib.controllers.kinds import TRIAL
from katib.controllers.ports import EventRecorder
from katib.runtime.clock import Clock
from katib.runtime.informer import Informer
from katib.runtime.objects import Key, Kind, Object
from katib.workloads.ports import Monitor, MonitorReport
from metrics_collector.collector import Collector, collector_for
from metrics_collector.reporter import Reporter
from metrics_collector.sources import FileTail

METRICS_DIRECTORY = "metrics"
"""Below a pod's directory: stands for the directory of a metrics file that the template names by an absolute path."""


class TrialMonitors:
    """Makes monitors for the primary containers of trials.

    Args:
        trials: Where the trial of a job is found.
        reporter: Takes the readings.
        forget: Removes what the log holds of a trial.
        events: Told of additional metrics that were not found.
        clock: Stamps readings that carry no time of their own: a curve needs an axis.
    """

    def __init__(
        self,
        trials: Informer[Trial],
        reporter: Reporter,
        forget: Callable[[str], None],
        events: EventRecorder,
        clock: Clock,
    ) -> None:
        self._trials = trials
        self._events = events
        self._reporter = reporter
        self._forget = forget
        self._clock = clock
        self._followed: dict[str, Trial] = {}

    def rewrites(self, job: Object) -> dict[str, str]:
        """Return which absolute directory of the template stands for which directory of the pod.

        A metrics file has one path in the template, and every trial running here needs a file of its own.
        """
        trial = self._trial_of(job)
        path = _metrics_file(trial) if trial is not None else ""
        return {str(Path(path).parent): METRICS_DIRECTORY} if path else {}

    def open(self, job: Object, pod_labels: dict[str, str], container: str, directory: Path) -> Monitor | None:
        """Return a monitor when this is the primary container of a primary pod and somebody wants its metrics."""
        trial = self._trial_of(job)
        if trial is None or trial.spec.objective is None or container != trial.spec.primary_container_name:
            return None
        if not trial.spec.primary_pod_labels.items() <= pod_labels.items():
            return None
        self._followed[trial.name] = trial
        kind = _collector_kind(trial)
        if kind == CollectorKind.STDOUT:
            return TrialMonitor(trial, self._collector(trial, trial.spec.objective), self._reporter, self._events)
        if kind == CollectorKind.FILE:
            path = directory / METRICS_DIRECTORY / Path(_metrics_file(trial)).name
            path.parent.mkdir(parents=True, exist_ok=True)
            collector = self._collector(trial, trial.spec.objective, path.name)
            return TrialMonitor(trial, collector, self._reporter, self._events, FileTail(path))
        return None

    def discard(self, job: Object) -> None:
        """Forget the readings of a run that was cut off: the next run reports them again."""
        trial = self._trial_of(job)
        if trial is not None:
            self._reporter.discard(trial.name)
            self._forget(trial.name)

    def job_gone(self, job: Object) -> None:
        """Forget what the last processes of a deleted job reported, if its trial is deleted too.

        They had their grace period, while the log of the trial was removed with the trial. Another trial may bear its
        name next, and those readings are none of its own.
        """
        for owner in job["metadata"].get("ownerReferences") or ():
            trial = self._trials.get(Key(job["metadata"].get("namespace", ""), owner["name"]))
            stays = trial is not None and trial.metadata.uid == owner["uid"]
            if trial is None or not stays or trial.metadata.deletion_timestamp is not None:
                self._reporter.discard(owner["name"])
                self._forget(owner["name"])

    def readings_wait(self, trial_names: Sequence[str], cause: str) -> None:
        """Say that readings of these trials cannot be stored now; they are kept, and tried again."""
        for trial in filter(None, map(self._followed.get, trial_names)):
            self._events.record(trial, warning=True, reason="ObservationLogUnavailable", message=cause)

    def forget(self, trial_name: str) -> None:
        """Forget a trial that is over."""
        self._followed.pop(trial_name, None)

    def _trial_of(self, job: Object) -> Trial | None:
        metadata = job["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("controller") and Kind(owner["apiVersion"], owner["kind"]) == TRIAL:
                return self._trials.get(Key(metadata.get("namespace", ""), owner["name"]))
        return None

    def _collector(self, trial: Trial, objective: ObjectiveSpec, source: str = "") -> Collector:
        return collector_for(
            objective, trial.spec.metrics_collector, trial.spec.early_stopping_rules, self._clock.now, source
        )


class TrialMonitor:
    """Follows one container: its output, or a file that it writes.

    Args:
        trial: Whose readings these are.
        collector: Finds the readings.
        reporter: Stores them.
        events: Told of additional metrics that were not found.
        file: The file to follow instead of the output.
    """

    def __init__(
        self,
        trial: Trial,
        collector: Collector,
        reporter: Reporter,
        events: EventRecorder,
        file: FileTail | None = None,
    ) -> None:
        self._trial = trial
        self._collector = collector
        self._reporter = reporter
        self._events = events
        self._file = file

    def feed(self, data: bytes) -> None:
        """Read a chunk of output, unless a file is followed."""
        if self._file is None:
            self._report(self._collector.feed(data))

    def poll(self) -> None:
        """Read what the file has grown by."""
        if self._file is not None:
            for data in self._file.poll():
                self._report(self._collector.feed(data))

    @property
    def backlogged(self) -> bool:
        """Whether storing is behind."""
        return self._reporter.backlogged

    @property
    def verdict(self) -> str:
        """Why the trial is to be stopped early."""
        return self._collector.verdict

    def close(self, done: Callable[[MonitorReport], None]) -> None:
        """Read the rest and call back when all is stored."""
        self.poll()
        self._report(self._collector.finish())
        report = MonitorReport(self._explanation())
        missing = self._collector.missing_metrics()
        if missing and not report.explanation:
            self._events.record(self._trial, warning=True, reason="MetricsMissing", message=missing)
        if self._file is not None:
            self._file.close()
        self._reporter.flush(self._trial.name, lambda: done(report))

    def _explanation(self) -> str:
        problem = self._file.problem if self._file is not None else ""
        return "; ".join(filter(None, (self._collector.explanation(), problem and f"the file {problem}")))

    def _report(self, readings: Sequence[MetricLog]) -> None:
        self._reporter.report(self._trial.name, readings)


def _collector_kind(trial: Trial) -> str:
    collector = trial.spec.metrics_collector.collector
    return collector.kind if collector is not None else CollectorKind.STDOUT


def _metrics_file(trial: Trial) -> str:
    """Return the path of the metrics file that the template names, empty when metrics are not read from a file."""
    source = trial.spec.metrics_collector.source
    if _collector_kind(trial) != CollectorKind.FILE or source is None or source.file_system_path is None:
        return ""
    return source.file_system_path.path
