"""Monitors between pods and the observation log, one for each primary container."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, TypeVarTuple

from katib.engine.algorithm_services.plan import free_port
from katib.engine.controllers.ports import EventRecorder
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Object
from katib.errors import UnavailableError
from katib.model.loadable import Loadable
from katib.model.metrics import NEW_TRY, ZERO_TIME, MetricLog, log_of_try
from katib.model.types import CollectorKind, FileSystemKind, ObjectiveSpec, Trial
from katib.places.machine.jobs.dependencies import Collection as PodCollection
from katib.places.machine.jobs.networks import PUSHES_NOTHING
from katib.places.machine.jobs.prepare import trial_owner
from katib.places.machine.pods.output import Monitor
from metrics_collector.collector import Collector, output_parser, wanted_names
from metrics_collector.reporter import Reporter
from metrics_collector.sources import MetricSource, ProgramOutput, SourceEvidence

if TYPE_CHECKING:
    from katib.places.machine.trials.earlier_runs import Rewind, StoredReadings

METRICS_PORT_VARIABLE = "KATIB_METRICS_PORT"
"""Port for a trial's program to expose its metrics on: trials run side by side, each with its own port."""

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})

_IN_FILES = frozenset({CollectorKind.FILE, CollectorKind.TENSORFLOW_EVENT, CollectorKind.CUSTOM})
_READ_AGAIN = frozenset({CollectorKind.STDOUT, CollectorKind.FILE, CollectorKind.TENSORFLOW_EVENT})
_NEW_TRY = MetricLog(ZERO_TIME, NEW_TRY, "")
_LEFT_TO_OTHERS = frozenset({CollectorKind.PUSH, CollectorKind.CUSTOM})
_NOT_READ = _LEFT_TO_OTHERS | {CollectorKind.NONE}
_LASTING = _READ_AGAIN | {CollectorKind.NONE}

_STORE_SECONDS = 10.0

METRICS_DIRECTORY = "metrics"
"""Subdirectory of a pod's directory, in place of the template's absolute directory of metrics."""

_SOURCE_MONITOR: Final[Loadable[type[TrialMonitor[MetricSource]]]] = Loadable(
    "katib.places.machine.trials.sources:SourceMonitor"
)
_SOURCE_OF: Final[Loadable[Callable[..., MetricSource | None]]] = Loadable(
    "katib.places.machine.trials.sources:source_of"
)
_REST_OF: Final[Loadable[Callable[..., MetricSource | None]]] = Loadable("katib.places.machine.trials.sources:rest_of")
_STORED_READINGS: Final[Loadable[type[StoredReadings]]] = Loadable(
    "katib.places.machine.trials.earlier_runs:StoredReadings"
)
_REWIND: Final[Loadable[type[Rewind]]] = Loadable("katib.places.machine.trials.earlier_runs:Rewind")

S = TypeVar("S", ProgramOutput, MetricSource)
M = TypeVar("M", bound="TrialMonitor[Any]")
Ts = TypeVarTuple("Ts")

_log = logging.getLogger(__name__)


class LogVariables(Protocol):
    """Returns the environment variables with the address for a trial's metrics."""

    def __call__(self, trial_name: str, metrics: Collection[str], /, *, pushes: bool) -> Mapping[str, str]:
        """Return the variables of a trial.

        Args:
            trial_name: Its name.
            metrics: Metrics to store from a status of Kubeflow Trainer.
            pushes: Whether it may push, too.
        """


class RewindableLog(Protocol):
    """The part of the observation log that a monitor needs beside the reporter."""

    def read(self, trial_name: str, /) -> Iterable[MetricLog]:
        """Return the readings of a trial."""

    def delete(self, trial_name: str, /) -> None:
        """Remove the readings of a trial."""

    def rewind(self, trial_name: str, step: int, /) -> None:
        """Remove the readings from a step on."""


class TrialMonitors:
    """Creates monitors for the primary containers of trials.

    Attributes:
        followed: By name, the trials whose readings are collected here.
        keeps_checkpoint: Returns whether a failed attempt of a job leaves its checkpoint to the next one.

    Args:
        trials: Cache of trials.
        reporter: Stores the readings.
        log: Log with the earlier readings, which are read, or removed if they are reported again.
        events: Recorder of additional metrics that were not found.
        clock: Stamps readings without a time of their own: a curve needs an axis.
        log_variables: Returns the environment variables with the address for metrics.
        sdk_variables: Further environment variables of a trial with the collector Push.
        host_file: Name of the file in a pod's directory with the name of its machine; empty if pods run on this one.
    """

    def __init__(
        self,
        trials: Informer[Trial],
        reporter: Reporter,
        log: RewindableLog,
        events: EventRecorder,
        clock: Clock,
        log_variables: LogVariables = lambda _trial_name, _metrics, *, pushes: NO_VARIABLES,  # noqa: ARG005
        sdk_variables: Mapping[str, str] = NO_VARIABLES,
        host_file: str = "",
    ) -> None:
        self._host_file = host_file
        self._log = log
        self._stored: dict[str, StoredReadings] = {}
        self._reached: dict[str, int | None] = {}
        self._sdk_variables = sdk_variables
        self._log_variables = log_variables
        self._trials = trials
        self._events = events
        self._reporter = reporter
        self._clock = clock
        self.followed: dict[str, Trial] = {}
        self.keeps_checkpoint: Callable[[Object], bool] = lambda _job: False
        self._tries: dict[str, TrialAttempt] = {}
        self._ports: dict[str, int] = {}

    def collection(self, job: Object, pod_labels: Mapping[str, str]) -> PodCollection:
        """Return the environment and rewrites for a pod with these labels.

        Metrics are written to one path in the template, but every trial running here needs a place of its own.
        """
        if (trial := self._trial_of(job)) is None:
            return PodCollection(NO_VARIABLES, {})
        variables, kind = dict(NO_VARIABLES), trial.spec.metrics_collector.kind
        if trial.spec.objective is not None and kind != CollectorKind.NONE:
            names = wanted_names(trial.spec.objective.metric_names, trial.spec.early_stopping_rules)
            variables |= self._log_variables(trial.name, names, pushes=kind not in PUSHES_NOTHING)
            if kind == CollectorKind.PUSH:
                variables |= self._sdk_variables
            if kind == CollectorKind.PROMETHEUS_METRIC:
                port = self._ports[trial.name] = free_port(self._ports.values())
                variables[METRICS_PORT_VARIABLE] = str(port)
        if kind not in _IN_FILES:
            return PodCollection(variables, {})
        rewrites = {directory: METRICS_DIRECTORY} if (directory := _directory(trial)) else {}
        collector = trial.spec.metrics_collector.collector
        if kind != CollectorKind.CUSTOM or collector is None or not is_primary(trial, pod_labels):
            return PodCollection(variables, rewrites)
        own = collector.custom_collector
        where = "spec.metricsCollectorSpec.collector.customCollector"
        return PodCollection(variables, rewrites, [(where, own)] if own else ())

    def needs_machine(self, job: Object) -> bool:
        """Return whether metrics are sent to, or read from, an address of this machine."""
        trial = self._trial_of(job)
        return trial is not None and trial.spec.metrics_collector.kind not in PUSHES_NOTHING

    def open(self, job: Object, pod_labels: dict[str, str], container: str, directory: Path) -> Monitor | None:
        """Return a monitor if this is the primary container of a primary pod and its trial has an objective."""
        trial = self._trial_of(job)
        if trial is None or trial.spec.objective is None or container != trial.spec.primary_container_name:
            return None
        if not is_primary(trial, pod_labels):
            return None
        self.followed[trial.name] = trial
        if trial.spec.metrics_collector.kind == CollectorKind.STDOUT:
            output = ProgramOutput(output_parser(trial.spec, trial.spec.objective))
            return self._monitor(OutputMonitor, output, job, trial, trial.spec.objective)
        if trial.spec.metrics_collector.kind in _NOT_READ:
            return None
        source = _SOURCE_OF.load()(
            trial, trial.spec.objective, directory / METRICS_DIRECTORY, self._ports.get(trial.name), self._host_file
        )
        if source is None:
            return None
        return self._monitor(_SOURCE_MONITOR.load(), source, job, trial, trial.spec.objective)

    def try_again(self, job: Object, failed: Sequence[Mapping[str, str]], others: Sequence[Mapping[str, str]]) -> None:
        """Let the next monitor set aside the earlier attempts' readings, if all primary pods have failed."""
        trial = self._trial_of(job)
        if trial is None or trial.name in self._reached or trial.spec.objective is None:
            return
        if not any(is_primary(trial, labels) for labels in failed) or any(is_primary(trial, o) for o in others):
            return
        if trial.spec.metrics_collector.kind in _LEFT_TO_OTHERS:
            if not self.keeps_checkpoint(job):
                self._reporter.report(trial.name, [_NEW_TRY])
            return
        before = self._tries.get(trial.name)
        self._tries[trial.name] = TrialAttempt(
            self.keeps_checkpoint(job), before, partial(self._log.rewind, trial.name)
        )

    def may_outlive(self, job: Object) -> bool:
        """Return whether everything that a trial reports is in its output or in files.

        Pushed metrics and those of an endpoint are lost without an engine.
        """
        trial = self._trial_of(job)
        return trial is not None and trial.spec.metrics_collector.kind in _LASTING

    def resume(self, job: Object) -> None:
        """Read the stored readings of a trial: its monitors find all of them again."""
        if (trial := self._trial_of(job)) is not None:
            self._stored[trial.name] = _STORED_READINGS.load()(self._all_tries(trial.name))

    def _all_tries(self, trial_name: str) -> Iterator[MetricLog]:
        """Yield the readings of a trial and of its earlier attempts: its output has them all."""
        yield from self._log.read(trial_name)
        number = 1
        while readings := list(self._log.read(log_of_try(trial_name, number))):
            yield from readings
            number += 1

    def go_on(self, job: Object, cut_off: Path | None = None) -> None:
        """Record the stored steps of a run that the next one continues, and store the rest of an interrupted one.

        Raises:
            UnavailableError: The rest cannot be stored now.
        """
        if (trial := self._trial_of(job)) is not None:
            self._stored.pop(trial.name, None)
            if cut_off is not None and trial.spec.objective is not None:
                self._store_rest(job, trial, trial.spec.objective, cut_off)
            steps = [reading.step for reading in self._log.read(trial.name) if reading.step is not None]
            self._reached[trial.name] = max(steps, default=None)

    def _store_rest(self, job: Object, trial: Trial, objective: ObjectiveSpec, directory: Path) -> None:
        """Store the rest of the output of the last primary pod before the engine was killed.

        An incomplete last line is left out.
        """
        if trial.spec.metrics_collector.kind not in _READ_AGAIN:
            return
        source = _REST_OF.load()(trial, objective, directory)
        if source is None:
            return
        self._stored[trial.name] = _STORED_READINGS.load()(self._all_tries(trial.name))
        monitor, stored = self._monitor(_SOURCE_MONITOR.load(), source, job, trial, objective), threading.Event()
        with closing(source):
            for found in source.poll():
                monitor.report(found)
        self._stored.pop(trial.name)
        self._reporter.flush(trial.name, stored.set)
        if not stored.wait(_STORE_SECONDS):
            raise UnavailableError(f"readings of {trial.name} cannot be stored; it continues when they can")

    def discard(self, job: Object) -> None:
        """Forget the readings of an interrupted or discarded run: the next run reports them again."""
        trial = self._trial_of(job)
        if trial is not None:
            self._stored.pop(trial.name, None)
            self._reached.pop(trial.name, None)
            self._tries.pop(trial.name, None)
            self._reporter.discard(trial.name)
            self._log.delete(trial.name)

    def job_gone(self, job: Object) -> None:
        """Forget the readings of a deleted job's last processes, if its trial is deleted too.

        They had their grace period, while the log of the trial was removed with the trial. Another trial may get its
        name, and must not inherit those readings.
        """
        for owner in job["metadata"].get("ownerReferences") or ():
            trial = self._trials.get(Key(job["metadata"].get("namespace", ""), owner["name"]))
            stays = trial is not None and trial.metadata.uid == owner["uid"]
            if trial is None or not stays or trial.metadata.deletion_timestamp is not None:
                self._reporter.discard(owner["name"])
                self._log.delete(owner["name"])

    def readings_wait(self, trial_names: Sequence[str], cause: str) -> None:
        """Record that readings of these trials cannot be stored now; they are kept, and retried."""
        for name in trial_names:
            if (trial := self.followed.get(name)) is not None:
                self._events.record(trial, warning=True, reason="ObservationLogUnavailable", message=cause)

    def forget(self, trial_name: str) -> None:
        """Forget a completed trial."""
        self.followed.pop(trial_name, None)
        self._stored.pop(trial_name, None)
        self._reached.pop(trial_name, None)
        self._tries.pop(trial_name, None)
        self._ports.pop(trial_name, None)

    def _trial_of(self, job: Object) -> Trial | None:
        name = trial_owner(job)
        return None if name is None else self._trials.get(Key(job["metadata"].get("namespace", ""), name))

    def _next_try(self, job: Object, trial_name: str) -> TrialAttempt:
        """Return the attempt for a new monitor: a pending one, or that of the concurrent monitors."""
        current = self._tries.get(trial_name)
        if current is None:
            current = TrialAttempt(self.keeps_checkpoint(job), None, partial(self._log.rewind, trial_name))
            self._tries[trial_name] = current
        current.monitors += 1
        return current

    def _monitor(self, kind: type[M], source: SourceEvidence, job: Object, trial: Trial, objective: ObjectiveSpec) -> M:
        name, *others = objective.metric_names
        rules, reached = trial.spec.early_stopping_rules, self._reached.pop(trial.name, None)
        return kind(
            trial=trial,
            source=source,
            collector=Collector(name, others, source, rules, objective.type, self._clock.now),
            reporter=self._reporter,
            events=self._events,
            stored=self._stored.get(trial.name),
            current=self._next_try(job, trial.name),
            rewind=None if reached is None else _REWIND.load()(reached, partial(self._log.rewind, trial.name)),
        )


def is_primary(trial: Trial, pod_labels: Mapping[str, str]) -> bool:
    return trial.spec.primary_pod_labels.items() <= pod_labels.items()


def _directory(trial: Trial) -> str:
    """Return the template's directory of metrics; empty if it has none."""
    source = trial.spec.metrics_collector.source
    place = None if source is None else source.file_system_path
    if place is None or not place.path:
        return ""
    return place.path if place.kind == FileSystemKind.DIRECTORY else str(Path(place.path).parent)


@dataclass(slots=True)
class TrialAttempt:
    """One attempt of a trial: the readings of the final one are its value, and earlier ones are set aside.

    An attempt continues the series of the one before it if its first step is later than that one's, so that it has read
    a checkpoint of its own; without steps, if the trial's checkpoint is kept here.

    Attributes:
        keeps_checkpoint: Whether a checkpoint of the attempt before exists.
        before: The failed one before; None for the first.
        rewind: Removes readings from a step on from the log.
        monitors: Number of its monitors.
        first: The first step that it reported.
        has_begun: Whether it has reported something, or ended.
    """

    keeps_checkpoint: bool = False
    before: TrialAttempt | None = None
    rewind: Callable[[int], None] = lambda _step: None
    monitors: int = 0
    first: int | None = None
    has_begun: bool = False

    def fail(self) -> None:
        """Begin the next attempt with the monitors of this one."""
        if self.has_begun:
            self.before = replace(self)
        self.first, self.has_begun = None, False

    def begun(self, readings: list[MetricLog]) -> list[MetricLog]:
        """Return the first readings, after a marker that sets earlier ones aside, and record their first step."""
        self.has_begun = True
        before, self.before = self.before, None
        self.first = min((reading.step for reading in readings if reading.step is not None), default=None)
        if before is None:
            return readings
        if self.first is not None and before.first is not None:
            if self.first > before.first:
                self.rewind(self.first)
                self.first = before.first
                return readings
        elif self.keeps_checkpoint:
            self.first = before.first
            return readings
        return [_NEW_TRY, *readings]


def shielded(method: Callable[[M, *Ts], None]) -> Callable[[M, *Ts], None]:
    """Make a method of a monitor do nothing once one of them has raised."""

    @wraps(method)
    def guarded(monitor: M, *arguments: *Ts) -> None:
        if not monitor.failure:
            try:
                method(monitor, *arguments)
            except Exception as error:  # noqa: BLE001 - whatever it is, the log and the report get it
                monitor.fail(error)

    return guarded


@dataclass(kw_only=True, slots=True)
class TrialMonitor(Generic[S]):
    """Counts the readings of a trial and has them stored.

    Attributes:
        trial: The trial.
        source: Source of the readings.
        collector: Counts them.
        reporter: Stores them.
        events: Recorder of additional metrics that were not found.
        current: The attempt that it reads.
        stored: Readings stored by an earlier engine; None if there are none.
        rewind: Replaces the steps of a resumed run; None for a new run.
        failure: Why reading has ended; empty if there is no problem.
    """

    trial: Trial
    source: S
    collector: Collector
    reporter: Reporter
    events: EventRecorder
    stored: StoredReadings | None
    rewind: Rewind | None
    current: TrialAttempt = field(default_factory=TrialAttempt)
    failure: str = ""

    @property
    def backlogged(self) -> bool:
        """Whether storing is behind; never after a failure."""
        return not self.failure and self.reporter.backlogged

    @property
    def verdict(self) -> str:
        """Why the trial is to be stopped early."""
        return "" if self.failure else self.collector.verdict

    def feed(self, data: bytes) -> None:
        """Take in output of the program."""

    def poll(self) -> None:
        """Read new data of another source, unless storing is behind: others wait on this thread."""

    def hasten(self) -> None:
        """Read data that disappears with the program."""

    def report(self, readings: list[MetricLog]) -> None:
        """Count readings, and store those that are not stored yet."""
        taken = self.collector.take(readings)
        if self.rewind is not None:
            self.rewind.before(taken)
        if self.stored is not None:
            taken = self.stored.without(readings, taken)
        if taken and not self.current.has_begun:
            taken = self.current.begun(taken)
        self.reporter.report(self.trial.name, taken)

    def begin_again(self) -> None:
        """Let the next readings set aside those of the failed program, unless other pods report as well."""
        if self.current.monitors == 1:
            self.current.fail()

    def close(self, done: Callable[[str], None]) -> None:
        """Read the rest, report missing metrics, and call back when all is stored, or at once on a failure."""
        try:
            problem = self._read_end()
            if not self.current.has_begun:
                self.reporter.report(self.trial.name, self.current.begun([]))
            explanation = self.collector.explanation()
            missing = "; ".join(filter(None, (self.collector.missing_metrics(), problem)))
            if missing and not explanation:
                self.events.record(self.trial, warning=True, reason="MetricsMissing", message=missing)
            text = self.failure or "; ".join(filter(None, (explanation, problem)))
            self.reporter.flush(self.trial.name, partial(done, text))
        except Exception as error:  # noqa: BLE001 - may run on a source's thread, which has no other handler
            self.fail(error)
            done(self.failure)

    def _read_end(self) -> str:
        """Read the rest that the end of the program completes; return the problem of the source."""
        self.report(self.source.finish())
        return ""

    def fail(self, error: Exception) -> None:
        """Stop reading: the pod continues, and the report has the cause."""
        self.failure = f"reading the metrics failed: {error}"
        _log.error("Monitor failed", exc_info=error, extra={"trial": self.trial.name})


class OutputMonitor(TrialMonitor[ProgramOutput]):
    """Reads the output of a container."""

    @shielded
    def feed(self, data: bytes) -> None:
        self.report(self.source.feed(data))
