"""The collector as a container of the trial's pod: follows the file, watches the program, reports while it runs.

It ends when its own work is done, with success if nothing is left to store, whatever the outcome of the program. Its
termination message starts with whether all readings are stored, so that a part is not mistaken for the whole:

- The program ended: read the rest, store it, report missing metrics, end.
- The rules are met: end the program, store everything, notify the early stopping service, end.
- SIGTERM: continue during the program's grace period, and store all readings before its own ends.
- The database is unavailable: keep everything and retry; give up long after the program ended, with the reason.

A sidecar that Kubernetes would restart waits for SIGTERM once its work is done, except in a pod without other running
containers: the kubelet then finds all of them ended at once, and the pod is over. A sidecar that is restarted anyway
continues from the last one (`resumption`) and waits: the program runs once more, or another webhook has added a
container to the pod.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from katib.errors import Backoff, KatibError, UnavailableError
from katib.model.failure_text import LAST_OUTPUT, LAST_OUTPUT_BYTES, last_line
from katib.model.metrics import ZERO_TIME, MetricLog, parse_value
from katib.model.types import UNAVAILABLE, CollectorKind
from metrics_collector.arguments import Arguments
from metrics_collector.collector import Collector, wanted_names
from metrics_collector.delivery import DbManagerLog, set_trial_status
from metrics_collector.parsers import parser_for
from metrics_collector.pod_settings import PodSettings
from metrics_collector.program import LaunchedProgram, ProgramPhase, TrainingProgram
from metrics_collector.reporter import Reporter
from metrics_collector.resume_point import ResumePoint
from metrics_collector.resumption import ResumableLog
from metrics_collector.seen_program import SeenProgram
from metrics_collector.sources import FileSource, MetricSource
from metrics_collector.sources.file_tail import FileTail


@dataclass(frozen=True, slots=True)
class SourceSelection:
    """The source of a sidecar, and traces of its program.

    Attributes:
        directory: Directory of the markers of Katib's shell around the program; None: there is no such shell.
        left_a_trace: Returns whether a program has left output.
    """

    source: MetricSource
    directory: Path | None
    left_a_trace: Callable[[], bool] = lambda: False

    def resume_point_of(self, pod: PodSettings) -> Path | None:
        """Return the path of the resume point; None if a successor would not find it.

        The name is that of earlier versions, so that a collector can continue one of theirs.
        """
        directory = pod.launcher_directory or self.directory
        return None if directory is None else directory / f"{pod.pod_uid}.checkpoint"


def kind_of(arguments: Arguments, pod: PodSettings) -> str:
    if pod.kind:
        return pod.kind
    if arguments.path is None:
        return CollectorKind.PROMETHEUS_METRIC
    is_events = not arguments.file_format and not arguments.filters and not arguments.path.is_file()
    return CollectorKind.TENSORFLOW_EVENT if is_events else CollectorKind.FILE


def select(arguments: Arguments, pod: PodSettings, on_data: Callable[[bytes], None]) -> SourceSelection:
    """Return the source of a sidecar.

    Args:
        on_data: Called with every chunk of a followed file.

    Raises:
        InvalidError: The format is unknown, or a filter is not an RE2 pattern with two groups.
    """
    # Each kind of source is imported on demand: a collector should be ready before its program ends.
    kind, path = kind_of(arguments, pod), arguments.path
    names = wanted_names(arguments.metrics, arguments.rules)
    if kind == CollectorKind.PROMETHEUS_METRIC or path is None:
        from metrics_collector.sources.prometheus import PrometheusEndpoint
        from metrics_collector.sources.scraping import MetricsEndpoint

        source = PrometheusEndpoint([MetricsEndpoint.of_text(pod.http_get)], names)
        return SourceSelection(source, None)
    if kind == CollectorKind.TENSORFLOW_EVENT:
        from metrics_collector.sources.event_directory import EventDirectory

        events = EventDirectory(path, names)
        return SourceSelection(events, path, lambda: not events.is_empty)
    parser = parser_for(arguments.file_format, names, arguments.filters)
    return SourceSelection(FileSource(FileTail(path), parser, str(path), on_data), path.parent, path.exists)


_MAX_BATCH = 1_000
"""Readings of a report: Katib's DB manager refuses messages beyond 4 MB."""

_MAX_AGE_SECONDS = 1.0
"""Maximum age of a curve on a page; hundreds of sidecars share one DB manager."""

_RESERVE_SECONDS = 5.0
"""Reserved from the pod's grace period for storing readings."""

_LONGEST_PAUSE_SECONDS = 10.0

ALL_STORED = "all readings are stored"
"""The first line of the termination message if everything is stored; controllers rely on it."""

NOT_ALL_STORED = "not all readings are stored: "
"""Prefix of the termination message if not everything is stored, whatever the exit code; the reason follows."""

_CONTAINER_LOG = 1
"""Descriptor to which the metrics file is copied, for readers of the container's log."""

_logger = logging.getLogger(__name__)


class Sidecar:
    """One run of the collector. `run` in the main thread; `terminate` from a signal handler."""

    def __init__(self, arguments: Arguments, pod: PodSettings) -> None:
        self._arguments = arguments
        self._pod = pod
        self._is_copied = pod.kind != CollectorKind.STDOUT  # its output is in the log of its own container
        self._objective, *additional = arguments.metrics
        selection = select(arguments, pod, self._note_output)
        self._source = selection.source
        self._collector = Collector(
            self._objective,
            additional,
            self._source,
            arguments.rules,
            arguments.objective_type,
            lambda: datetime.now(UTC),
        )
        self._program: TrainingProgram = (
            SeenProgram(
                selection.directory,
                left_a_trace=selection.left_a_trace,
                grace_seconds=pod.grace_seconds,
                monotonic=time.monotonic,
            )
            if pod.launcher_directory is None
            else LaunchedProgram(
                pod.launcher_directory,
                restart_policy=pod.restart_policy,
                own_restart=pod.program_restart,
                monotonic=time.monotonic,
            )
        )
        self._log = DbManagerLog(arguments.db_manager, pod.credentials)
        self._once = ResumableLog(self._log, ResumePoint(selection.resume_point_of(pod)))
        self._reporter = Reporter(self._once.report, max_batch=_MAX_BATCH, max_age_seconds=_MAX_AGE_SECONDS)
        self._once.follow_reporter(lambda: (self._reporter.settled, self._reporter.lost))
        self._objective_found = False
        self._stops = False
        self._may_stop = bool(arguments.rules)
        self._is_hastened = False
        self._terminated_at: float | None = None
        self._deadline = 0.0  # when to give up, once the program has ended
        self._missing: list[str] = []  # why not all readings are stored
        self._news: list[str] = []
        self._last_output = b""

    def terminate(self, now: float) -> None:
        """Request an end within the grace period, which started at a time of the monotonic clock."""
        if self._terminated_at is None:
            self._terminated_at = now

    def run(self) -> int:
        """Collect until all work is done; return the exit code."""
        phase = self._follow()
        stored = self._store(phase)
        if stored and self._program.stopped:
            self._mark_as_stopped()
        self._leave_news(phase)
        self._program.release()
        pause, has_ended = 0.02, phase is ProgramPhase.ENDED
        while self._stays(stored) and self._terminated_at is None:
            if has_ended and self._program.runs_again():
                leave_message(self._pod.termination_log, f"{NOT_ALL_STORED}the program runs once more")
                return 1
            if has_ended and self._pod.is_alone and not self._once.is_resumed and self._program.is_gone():
                break
            time.sleep(pause)
            pause = min(2 * pause, self._arguments.poll_seconds)
            self._program.release()
        return 0 if stored else 1

    def _stays(self, stored: bool) -> bool:
        """Whether to wait for SIGTERM: a restart would change nothing, or there is no other end."""
        return self._pod.is_native or (stored and self._pod.stays)

    # --- while the program runs ---------------------------------------------------------------------------------------

    def _follow(self) -> ProgramPhase:
        """Read until the program has ended or the sidecar must end; return the phase."""
        began = time.monotonic()
        while True:
            if self._terminated_at is not None and not self._is_hastened:
                self._is_hastened = True
                self._source.hasten()
            phase = self._program.look()  # before reading, so that all output before the end is read after it
            self._read()
            if self._stops:
                self._program.insist()
            elif phase is ProgramPhase.RUNNING and self._may_stop and self._collector.verdict:
                self._stop_early()
            if phase is ProgramPhase.ENDED or self._must_end(phase):
                return phase
            timeout = self._arguments.timeout_seconds
            if timeout and time.monotonic() - began >= timeout:
                self._missing.append(f"the program did not end within {timeout:g} s, the collector's -timeout")
                return phase
            time.sleep(self._arguments.poll_seconds)

    def _must_end(self, phase: ProgramPhase) -> bool:
        """Whether only time to store is left: at once if no program runs that may still report."""
        if self._terminated_at is None:
            return False
        seconds = self._pod.seconds_to_end
        over = self._terminated_at + seconds - min(_RESERVE_SECONDS, seconds / 2)
        return phase is not ProgramPhase.RUNNING or time.monotonic() >= over

    def _read(self) -> bool:
        """Process the new part of the file; False if storing is behind and there may be more."""
        for readings in self._source.poll():
            self._once.follow_source(self._source)
            self._report(self._collector.take(readings))
            if self._reporter.backlogged:
                return False
        return True

    def _report(self, readings: list[MetricLog]) -> None:
        self._objective_found = self._objective_found or any(r.name == self._objective for r in readings)
        self._reporter.report(self._arguments.trial, self._once.unsettled(readings))

    def _note_output(self, chunk: bytes) -> None:
        """Keep the last output, and copy it to the container's log; a failed copy does not stop collection."""
        self._last_output = (self._last_output + chunk[-LAST_OUTPUT_BYTES:])[-LAST_OUTPUT_BYTES:]
        rest = memoryview(chunk)
        while rest and self._is_copied:
            try:
                rest = rest[os.write(_CONTAINER_LOG, rest) :]
            except OSError:
                self._is_copied = False

    def _stop_early(self) -> None:
        self._source.hasten()
        if problem := self._program.stop():
            self._may_stop = False
            _logger.error(
                "the rules are met (%s), but the program cannot be ended: %s", self._collector.verdict, problem
            )
        else:
            self._stops = True
            _logger.warning("the program is stopped early: %s", self._collector.verdict)

    # --- after the program --------------------------------------------------------------------------------------------

    def _store(self, phase: ProgramPhase) -> bool:
        """Read the rest and wait until everything is settled; False if a retry may still store something.

        A restart of this container cannot change permanent refusals of the DB manager, and its end must not make a job
        run its program again.
        """
        self._deadline = time.monotonic() + self._pod.give_up_seconds
        self._source.end()
        while not (read := self._read() and self._source.is_over) and self._time_is_left():
            time.sleep(min(self._arguments.poll_seconds, 0.05))
        self._report(self._collector.take(self._source.finish()))
        self._explain(phase)
        settled: list[bool] = []
        self._reporter.flush(self._arguments.trial, lambda: settled.append(True))
        while not settled and self._time_is_left():
            time.sleep(min(self._arguments.poll_seconds, 0.05))
        unsettled = self._reporter.close(0.0)
        self._note_what_is_missing(phase, read=read, unsettled=unsettled)
        return read and not unsettled

    def _note_what_is_missing(self, phase: ProgramPhase, *, read: bool, unsettled: int) -> None:
        if phase is ProgramPhase.RUNNING and not self._missing:
            self._missing.append("the collector had to end before the program")
        if self._program.doubt:
            self._missing.append(self._program.doubt)
        if not read:
            self._missing.append("there was no time to read all of the output")
        if unsettled:
            self._missing.append(f"{unsettled} readings could not be stored: {self._log.problem or 'no time was left'}")
        if refused := self._once.refused:
            reason = f" ({self._once.refusal})" if self._once.refusal else ""
            self._missing.append(f"readings that the DB manager refused: {refused}{reason}")

    def _explain(self, phase: ProgramPhase) -> None:
        """Report why there is no objective; to the log too, for controllers that read nothing else."""
        if phase is not ProgramPhase.ENDED:
            return
        is_missing = self._program.completed and not self._objective_found and not self._program.stopped
        is_posted = is_missing and self._is_posted()
        why = self._last_words() or ("" if is_posted else self._collector.explanation())
        self._news += filter(None, (why, self._source.problem))
        if refused := self._collector.refused():
            _logger.warning("%s", refused)
        if is_missing and not is_posted:
            self._report([MetricLog(ZERO_TIME, self._objective, UNAVAILABLE)])

    def _is_posted(self) -> bool:
        """Whether the program itself reported the objective: as a status of Kubeflow Trainer, or by a call."""
        try:
            found = self._log.newest(self._arguments.trial, limit=1, metric_name=self._objective)
        except KatibError:
            return False
        return any(parse_value(reading.value) is not None for reading in found)

    def _last_words(self) -> str:
        """Return the last line of a failed program, since its output is deleted with its pod."""
        line = last_line(self._last_output)
        return LAST_OUTPUT + line if line and not (self._program.completed or self._program.stopped) else ""

    def _mark_as_stopped(self) -> None:
        """Mark the trial as stopped. If that fails, it counts as one that ran to its end."""
        backoff, failures = Backoff(self._arguments.poll_seconds, _LONGEST_PAUSE_SECONDS), 0
        while True:
            try:
                set_trial_status(self._arguments.early_stopping, self._arguments.trial)
            except UnavailableError as error:
                _logger.warning("trying again to tell that the trial was stopped: %s", error)
            except KatibError as error:
                _logger.warning("the early stopping service does not mark the trial as stopped: %s", error)
                return
            else:
                return
            failures += 1
            resume = time.monotonic() + backoff.pause_seconds(failures)
            while time.monotonic() < resume:
                if not self._time_is_left():
                    return
                time.sleep(self._arguments.poll_seconds)

    def _time_is_left(self) -> bool:
        deadline = self._deadline
        if self._terminated_at is not None:
            seconds = self._pod.seconds_to_end
            deadline = min(deadline, self._terminated_at + seconds - min(1.0, seconds / 4))
        return time.monotonic() < deadline

    def _leave_news(self, phase: ProgramPhase) -> None:
        """Write to the pod's status whether all is stored, once that is certain, and other reports."""
        certain = [ALL_STORED] if phase is ProgramPhase.ENDED else []
        missing = " ".join("; ".join(self._missing).split())  # one line, whatever a server returned
        first = [NOT_ALL_STORED + missing] if missing else certain
        if lines := [*first, *filter(None, ["; ".join(self._news)])]:
            leave_message(self._pod.termination_log, "\n".join(lines), is_warning=lines != certain)


def leave_message(path: Path, text: str, *, is_warning: bool = True) -> None:
    """Write a text to the termination log, which Kubernetes copies to the pod's status, and to the own log."""
    _logger.log(logging.WARNING if is_warning else logging.INFO, "%s", text)
    try:
        path.write_text(text[:2000])
    except OSError as error:
        _logger.warning("it cannot be left at %s: %s", path, error.strerror)
