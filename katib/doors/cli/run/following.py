"""Follows an experiment to its end: reads changes, shows moments, handles signals."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

import click

from katib.doors.cli import run_options as options
from katib.doors.cli.app import INTERRUPTED
from katib.doors.cli.signals import stop_on_signal
from katib.errors import ExpiredError, KatibError, UnavailableError
from katib.model.failure_text import last_line
from katib.model.features.repeats.feature import are_repeated
from katib.model.loadable import Loadable
from katib.model.types import Experiment, Trial
from katib.service.explaining.progress import Moment, RunProgress, SilentLines, TrialEnded, savings_of, with_remedy
from katib.service.tuning.service import Change, TuningService
from katib.service.tuning.states import condition_of

if TYPE_CHECKING:
    from katib.service.histories.live import LiveLogs

_ENDED_LINES: Final[Loadable[Callable[..., Iterator[str]]]] = Loadable("katib.doors.cli.run.ending:ended_lines")

_WAIT_SECONDS = 0.25
_WIND_DOWN_SECONDS = 15.0
"""How long the trials that a finished experiment no longer needs may take to stop before the run ends regardless."""

_LAST_CHANGES_SECONDS = 2.0
"""How long the last changes of trials may lag behind that of the experiment."""

_SHOWN_LOST_TRIALS = 50
_LOOKED_AT_LINES = 5
_LONGEST_LINE = 300


class Interrupt:
    """The first SIGINT or SIGTERM asks to stop; a second one ends the process at once, trials included."""

    def __init__(self) -> None:
        self.requested = False
        stop_on_signal(lambda _number: self.request(), lambda _number: INTERRUPTED)

    def request(self) -> None:
        """Ask to stop, from any thread."""
        self.requested = True


class _Display(Protocol):
    """Display of a run."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None, /
    ) -> None: ...

    def tell(self, moment: Moment) -> None: ...

    def tick(self) -> None: ...


class Run:
    """One run from its submission to its end.

    Attributes:
        was_over: Whether the experiment had ended before, so that nothing was run.
    """

    def __init__(
        self, service: TuningService, experiment: Experiment, interrupt: Interrupt, *, form: str | None, quiet: bool
    ) -> None:
        self.service = service
        self._interrupt = interrupt
        self._form = form
        self._quiet = quiet
        self._began = time.monotonic()
        self._completed_at: float | None = None
        self._finished_at: float | None = None
        self._namespace, self._name = experiment.namespace, experiment.name
        self.progress = RunProgress(experiment, datetime.now(UTC))
        self.was_over = self.progress.completed

    @property
    def is_interrupted(self) -> bool:
        """Whether the user interrupted it before it ended."""
        return self._interrupt.requested and not self.progress.finished

    def follow(self) -> None:
        """Show every change until the experiment has ended or the user interrupts."""
        changes: queue.SimpleQueue[Change | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._read_changes, args=(changes,), name="katib-changes", daemon=True).start()
        with self._display() as display, self._logs() as logs:
            while not self._interrupt.requested and not self._is_over():
                try:
                    change = changes.get(timeout=_WAIT_SECONDS)
                except queue.Empty:
                    change = None
                if isinstance(change, Exception):
                    raise change
                for moment in () if change is None else self.progress.observe(change):
                    display.tell(with_remedy(moment, self.service))
                    if logs is not None and isinstance(moment, TrialEnded):
                        logs.add(moment.trial)
                display.tick()

    def _is_over(self) -> bool:
        """Return whether nothing is left to wait for."""
        progress, now = self.progress, time.monotonic()
        if progress.completed:
            self._completed_at = self._completed_at or now
        if (progress.deleted or self._completed_at is not None) and progress.finished:
            self._finished_at = self._finished_at or now
        if self._finished_at is not None:
            return progress.all_reported or now - self._finished_at > _LAST_CHANGES_SECONDS
        return self._completed_at is not None and now - self._completed_at > _WIND_DOWN_SECONDS

    @contextmanager
    def _logs(self) -> Iterator[LiveLogs | None]:
        """Yield the writer of ended trials, if `--log-to` requests it."""
        places = options.log_places()
        if not places:
            yield None
            return
        from katib.service.histories.live import LiveLogs
        from katib.service.histories.written import open_log

        experiment, problems = self.progress.experiment, queue.SimpleQueue[str]()
        logs = LiveLogs(
            self.service,
            experiment,
            [partial(open_log, experiment, form, place) for form, place in places],
            problems.put,
        )
        try:
            yield logs
        finally:
            logs.close()
            while not problems.empty():
                click.echo(f"note: --log-to: {problems.get()}; the same line again writes what is missing", err=True)

    def _read_changes(self, changes: queue.SimpleQueue[Change | Exception]) -> None:
        while True:
            try:
                for change in self.service.changes(self._namespace, self._name):
                    changes.put(change)
                changes.put(UnavailableError(f"{self._name} was deleted while it was running"))
            except ExpiredError:  # too far behind: start over; known changes are not shown twice
                continue
            except Exception as error:  # noqa: BLE001 - raised where it is read
                changes.put(error)
            return

    def _display(self) -> _Display:
        if self._quiet:
            return SilentLines()
        from katib.service.explaining.lines import EventLines

        stream = sys.stderr if self._form else sys.stdout
        if not stream.isatty():
            return EventLines(self.progress, stream)
        from rich.console import Console

        if (console := Console(file=stream)).is_dumb_terminal:  # it cannot redraw
            return EventLines(self.progress, stream)
        from katib.doors.cli.run.live import LiveTable

        return LiveTable(self.progress, self.service, console)

    def report(self, place: str) -> int:
        """Print the ending and return the exit code.

        Args:
            place: Options that later commands need in order to find the experiment again.
        """
        if self.progress.deleted:
            raise UnavailableError(f"{self._name} was deleted while it was running")
        experiment = self.service.get(Experiment, self._namespace, self._name)
        has_failed = condition_of(experiment, "Failed") is not None
        if self._form:
            from katib.doors.cli.printing import print_object

            print_object(experiment.encode(), self._form)
        elif has_failed or not self._quiet:
            best = self.service.best(self._namespace, self._name)
            lost = self.service.trials(
                self._namespace, self._name, states=("Failed", "MetricsUnavailable"), limit=_SHOWN_LOST_TRIALS
            ).items
            seconds = time.monotonic() - self._began
            savings = savings_of(self.service, experiment)
            last_line = self._last_line(lost[0]) if best is None and lost else ""
            is_repeated = are_repeated(experiment.metadata.annotations)
            lines = _ENDED_LINES.load()(
                experiment,
                best,
                lost,
                seconds=seconds,
                place=place,
                savings=savings,
                last_line=last_line,
                means=self.service.confirmation(self._namespace, self._name) if is_repeated else None,
            )
            for line in lines:
                click.echo(line, err=self._quiet)  # quiet: only the cause of failure
        return 1 if has_failed else 0

    def _last_line(self, trial: Trial) -> str:
        """Return the last line that a trial printed; empty if there is none, or it cannot be read."""
        from katib.service.tuning.reading import shortened

        try:
            output = b"".join(self.service.logs(self._namespace, trial.name, tail_lines=_LOOKED_AT_LINES))
        except KatibError:
            return ""
        return shortened(last_line(output), _LONGEST_LINE)
