"""The collector as a container of the trial's pod: follows the file, watches the program, reports while it runs.

It ends when its own work is done, well if nothing is left to store, whatever became of the program:

- The program ended: read the rest, store it, say what was not found, end.
- The rules are met: end the program, store everything, tell the early stopping service, end.
- SIGTERM: go on while the program has its grace period, and store what there is before ours is over.
- The database is away: keep everything and try again; give up long after the program ended, with the reason.

A sidecar that Kubernetes would start again when it ends waits for SIGTERM once its work is done.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from katib.api.metrics import ZERO_TIME, MetricLog
from katib.api.types import UNAVAILABLE
from katib.errors import KatibError, UnavailableError
from metrics_collector.arguments import Arguments
from metrics_collector.collector import Collector
from metrics_collector.container_processes import PROC
from metrics_collector.delivery import DbManagerLog, set_trial_status
from metrics_collector.parsers import parser_for
from metrics_collector.program import Phase, Program
from metrics_collector.reporter import Reporter
from metrics_collector.sources import FileTail
from metrics_collector.stopping import Stop
from metrics_collector.surroundings import Surroundings

_MAX_BATCH = 1_000
"""Readings of a report: Katib's DB manager refuses messages beyond 4 MB."""

_MAX_AGE_SECONDS = 1.0
"""How old a curve may be that somebody looks at; hundreds of sidecars share one DB manager."""

_RESERVE_SECONDS = 5.0
"""Of the pod's grace period, kept for storing what was read."""

_LONGEST_PAUSE_SECONDS = 10.0

LAST_OUTPUT = "last output: "
"""How the words begin that the collector leaves when the program failed; controllers quote them."""

_LAST_OUTPUT_BYTES, _LAST_LINE_CHARACTERS = 2_000, 300

_logger = logging.getLogger(__name__)


class Sidecar:
    """One run of the collector. `run` in the main thread; `terminate` from a signal handler.

    Args:
        arguments: What to collect.
        surroundings: The pod.
        proc: Where processes are seen.
        output: Descriptor that the metrics file is copied to, for whoever reads the container's log.
        monotonic: Reads time.
        sleep: Waits.
    """

    def __init__(
        self,
        arguments: Arguments,
        surroundings: Surroundings,
        *,
        proc: Path = PROC,
        output: int = 1,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        names = list(dict.fromkeys([*arguments.metrics, *(rule.name for rule in arguments.rules)]))
        self._arguments = arguments
        self._surroundings = surroundings
        self._monotonic = monotonic
        self._sleep = sleep
        self._output = output
        self._objective, *additional = arguments.metrics
        self._collector = Collector(
            self._objective,
            additional,
            parser_for(arguments.file_format, names, arguments.filters),
            arguments.rules,
            arguments.objective_type,
            lambda: datetime.now(UTC),
            str(arguments.path),
        )
        self._tail = FileTail(arguments.path)
        self._program = Program(
            arguments.path,
            restart_policy=surroundings.restart_policy,
            wait_all=arguments.wait_all,
            monotonic=monotonic,
            proc=proc,
        )
        self._log = DbManagerLog(arguments.db_manager)
        self._reporter = Reporter(self._log, max_batch=_MAX_BATCH, max_age_seconds=_MAX_AGE_SECONDS)
        self._objective_found = False
        self._stop: Stop | None = None
        self._may_stop = bool(arguments.rules)
        self._terminated_at: float | None = None
        self._news: list[str] = []
        self._last_output = b""

    def terminate(self) -> None:
        """Ask for an end within the grace period."""
        if self._terminated_at is None:
            self._terminated_at = self._monotonic()

    def run(self) -> int:
        """Collect until all is done; return the exit code."""
        phase = self._follow()
        stored = self._store(phase)
        if stored and self._stop is not None:
            self._tell_of_the_stop()
        self._write_news()
        while stored and self._surroundings.stays and self._terminated_at is None:
            self._sleep(self._arguments.poll_seconds)
        return 0 if stored else 1

    # --- while the program runs ---------------------------------------------------------------------------------------

    def _follow(self) -> Phase:
        """Read until the program has ended or we must; return which."""
        began = self._monotonic()
        while True:
            phase = self._program.look()  # before reading: what was written before the end is read after it
            self._read()
            if self._stop is not None:
                self._stop.insist()
            elif self._collector.verdict and self._may_stop and phase is Phase.RUNNING:
                self._stop_early()
            if phase is Phase.ENDED or self._must_end(phase):
                return phase
            timeout = self._arguments.timeout_seconds
            if timeout and self._monotonic() - began >= timeout:
                self._news.append(f"the program did not end within {timeout:g} s, the collector's -timeout")
                return phase
            self._sleep(self._arguments.poll_seconds)

    def _must_end(self, phase: Phase) -> bool:
        """Tell whether there is just time left to store: at once when no program runs whose last words are to come."""
        if self._terminated_at is None:
            return False
        reserve = min(_RESERVE_SECONDS, self._surroundings.grace_seconds / 2)
        over = self._terminated_at + self._surroundings.grace_seconds - reserve
        return phase is not Phase.RUNNING or self._monotonic() >= over

    def _read(self) -> bool:
        """Take what the file has grown by; False when storing is behind and there may be more."""
        for chunk in self._tail.poll():
            self._echo(chunk)
            self._last_output = (self._last_output + chunk[-_LAST_OUTPUT_BYTES:])[-_LAST_OUTPUT_BYTES:]
            self._report(self._collector.feed(chunk))
            if self._reporter.backlogged:
                return False
        return True

    def _report(self, readings: list[MetricLog]) -> None:
        self._objective_found = self._objective_found or any(r.name == self._objective for r in readings)
        self._reporter.report(self._arguments.trial, readings)

    def _echo(self, chunk: bytes) -> None:
        """Copy to the container's log; nobody who cannot read it stops the collection."""
        rest = memoryview(chunk)
        while rest and self._output >= 0:
            try:
                rest = rest[os.write(self._output, rest) :]
            except OSError:
                self._output = -1

    def _stop_early(self) -> None:
        stop = Stop(self._program, self._surroundings.grace_seconds, self._monotonic)
        problem = stop.begin()
        if problem:
            self._may_stop = False
            _logger.error(
                "the rules are met (%s), but the program cannot be ended: %s; give the pod a runAsUser",
                self._collector.verdict,
                problem,
            )
        else:
            self._stop = stop
            _logger.warning("the program is stopped early: %s", self._collector.verdict)

    # --- after the program --------------------------------------------------------------------------------------------

    def _store(self, phase: Phase) -> bool:
        """Read the rest and wait until everything is settled; False when something may still be stored by another try.

        What the DB manager refuses for good no restart of this container would change, and its end must not make a job
        run its program again.
        """
        deadline = self._monotonic() + self._surroundings.give_up_seconds
        while not self._read() and self._time_is_left(deadline):
            self._sleep(self._arguments.poll_seconds)
        self._report(self._collector.finish())
        self._explain(phase)
        settled: list[bool] = []
        self._reporter.flush(self._arguments.trial, lambda: settled.append(True))
        while not settled and self._time_is_left(deadline):
            self._sleep(min(self._arguments.poll_seconds, 0.05))
        unsettled = self._reporter.close(0.0)
        if not settled:
            self._news.append(f"{unsettled} readings could not be stored: {self._log.problem or 'no time was left'}")
        if self._reporter.lost:
            self._news.append(f"readings that the DB manager refused: {self._reporter.lost}")
        return bool(settled)

    def _explain(self, phase: Phase) -> None:
        """Say why there is no objective; in the log too, where controllers look for it that read nothing else."""
        if phase is not Phase.ENDED:
            return
        problem = f"the file {self._tail.problem}" if self._tail.problem else ""
        self._news += filter(None, (self._last_words() or self._collector.explanation(), problem))
        if self._program.completed and not self._objective_found and self._stop is None:
            self._report([MetricLog(ZERO_TIME, self._objective, UNAVAILABLE)])

    def _last_words(self) -> str:
        """Return the last line of a program that failed: its output goes with its pod."""
        lines = self._last_output.decode(errors="replace").strip().splitlines()
        if self._program.completed or self._stop is not None or not lines:
            return ""
        return LAST_OUTPUT + "".join(c if c.isprintable() else " " for c in lines[-1][:_LAST_LINE_CHARACTERS])

    def _tell_of_the_stop(self) -> None:
        """Have the trial marked. Without success it merely counts as one that ran to its end."""
        deadline = self._monotonic() + self._surroundings.give_up_seconds
        pause = self._arguments.poll_seconds
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
            resume = self._monotonic() + pause
            while self._monotonic() < resume:
                if not self._time_is_left(deadline):
                    return
                self._sleep(self._arguments.poll_seconds)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _time_is_left(self, deadline: float) -> bool:
        if self._terminated_at is not None:
            margin = min(1.0, self._surroundings.grace_seconds / 4)
            deadline = min(deadline, self._terminated_at + self._surroundings.grace_seconds - margin)
        return self._monotonic() < deadline

    def _write_news(self) -> None:
        if self._news:
            leave_message(self._surroundings.termination_log, "; ".join(self._news))


def leave_message(path: Path, text: str) -> None:
    """Write why something is missing to where Kubernetes takes it into the pod's status, and to our own log."""
    _logger.warning("%s", text)
    try:
        path.write_text(text[:2000])
    except OSError as error:
        _logger.warning("it cannot be left at %s: %s", path, error.strerror)
