"""A run as a table that redraws itself, for terminals."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from katib.errors import KatibError
from katib.model.metrics import PROGRESS
from katib.model.trials import waiting_words
from katib.model.types import Trial
from katib.model.wording import format_duration
from katib.service.explaining.lines import header, moment_line
from katib.service.explaining.progress import (
    ExperimentHeldUp,
    IdenticalFailures,
    Moment,
    RunProgress,
    TrialEnded,
    TrialHeldUp,
    TrialRetried,
)
from katib.service.tuning.reading import (
    duration_of,
    metric_of,
    objective_text,
    parameters_of,
    pareto_trials,
    pareto_words,
    short,
    used_words,
)
from katib.service.tuning.replicas import may_have_replicas, replica_counts
from katib.service.tuning.service import TuningService
from katib.service.tuning.states import best_value, has_several_objectives, lost_count, state_of

_REDRAWS_PER_SECOND = 4
_METRIC_SECONDS = 1.0
_SHOWN_TRIALS = 10
_SHOWN_BEST = 5
_BAR_WIDTH = 40
_LOST = frozenset({"Failed", "MetricsUnavailable"})


class LiveTable:
    """Shows a run and leaves its last state on the screen; lost and failing trials are listed above it.

    Args:
        service: Queried once a second for the newest readings of running trials.
    """

    def __init__(self, progress: RunProgress, service: TuningService, console: Console) -> None:
        self._progress = progress
        self._service = service
        self._began = time.monotonic()
        self._readings: dict[str, str] = {}
        self._done: dict[str, str] = {}
        self._readings_at = 0.0
        self._replicas: dict[str, str] = {}
        self._live = Live(
            get_renderable=self._draw, console=console, refresh_per_second=_REDRAWS_PER_SECOND, vertical_overflow="crop"
        )

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._live.__exit__(exc_type, exc, tb)

    def tell(self, moment: Moment) -> None:
        """Print a line for losses, failures and waits; everything else is in the table."""
        if isinstance(moment, TrialEnded):
            self._readings.pop(moment.trial.name, None)
            self._done.pop(moment.trial.name, None)
        lost = isinstance(moment, TrialEnded) and state_of(moment.trial) in _LOST
        if lost or isinstance(moment, TrialRetried | TrialHeldUp | ExperimentHeldUp | IdenticalFailures):
            self._live.console.print(Text(moment_line(moment, self._progress), style="yellow"))

    def tick(self) -> None:
        """Refresh the metrics of running trials, at intervals, and their numbers of running replicas."""
        now = time.monotonic()
        if now - self._readings_at < _METRIC_SECONDS:
            return
        self._readings_at = now
        metric = metric_of(self._progress.experiment)
        for trial in _running(self._progress)[:_SHOWN_TRIALS]:
            name = trial.name
            try:
                readings = self._service.metrics(trial.namespace, name, metric=metric, limit=1)
                done = self._service.metrics(trial.namespace, name, metric=PROGRESS, limit=1)
            except KatibError:
                continue  # it may have been deleted; the next change will tell
            if readings:
                self._readings[name] = f"{metric}={short(readings[-1].value)}"
            if done:
                self._done[name] = f"{done[-1].value} %"
        if may_have_replicas(self._progress.experiment):
            with suppress(KatibError):
                experiment = self._progress.experiment
                pods = self._service.pods("Experiment", experiment.namespace, experiment.name)
                self._replicas = replica_counts(pods)

    def _draw(self) -> RenderableType:
        progress = self._progress
        parts: list[RenderableType] = [Text(header(progress.experiment), style="bold"), self._bar()]
        running = _running(progress)
        if running:
            parts.append(self._trials(running))
        if waiting := _waiting(progress):
            parts.append(Text(waiting, style="dim", no_wrap=True, overflow="ellipsis"))
        if has_several_objectives(progress.experiment):
            parts.extend(_pareto_set(progress))
        elif best_value(progress.experiment) is not None:
            parts.append(_best(progress))
        return Group(*parts)

    def _bar(self) -> RenderableType:
        progress, elapsed = self._progress, time.monotonic() - self._began
        left = progress.seconds_left(elapsed)
        of = f"/{progress.limit}" if progress.limit is not None else ""
        words = [f"{progress.done}{of} trials", format_duration(elapsed)]
        words.extend(f"{name} {used}" for name, used in used_words(progress.experiment).items())
        lost = lost_count(progress.experiment)
        if lost:
            words.append(f"{lost} failed")
        if left is not None and not progress.completed:
            words.append(f"about {format_duration(left)} left")
        line = Table.grid(padding=(0, 2))
        line.add_row(
            ProgressBar(total=progress.limit or max(1, progress.done), completed=progress.done, width=_BAR_WIDTH),
            Text(", ".join(words)),
        )
        return line

    def _trials(self, running: list[Trial]) -> RenderableType:
        table = Table(box=None, pad_edge=False, header_style="dim")
        replicas, done = self._replicas, self._done
        more = [*(["done"] if done else []), *(["replicas"] if replicas else [])]
        for heading in ("running", "for", *more, "latest", "parameters"):
            table.add_column(heading, no_wrap=True)
        for trial in running[:_SHOWN_TRIALS]:
            name = trial.name
            elapsed = duration_of(trial)
            count = [*([done.get(name, "-")] if done else []), *([replicas.get(name, "-")] if replicas else [])]
            cells = (name, elapsed, *count, self._readings.get(name, "-"), parameters_of(trial))
            table.add_row(*map(Text, cells))
        if len(running) > _SHOWN_TRIALS:
            table.add_row(Text(f"and {len(running) - _SHOWN_TRIALS} more", style="dim"))
        return table


def _running(progress: RunProgress) -> list[Trial]:
    """Return the running trials, oldest first; a copy, because the table is drawn on a thread of its own."""
    return [trial for trial in list(progress.active.values()) if state_of(trial) == "Running"]


def _waiting(progress: RunProgress) -> str:
    """Return the number of waiting trials and the cause of the first; empty if none waits."""
    waiting = [trial for trial in list(progress.active.values()) if state_of(trial) != "Running"]
    words = next((f": {trial.name} {words}" for trial in waiting if (words := waiting_words(trial))), "")
    return f"{len(waiting)} waiting{words}" if waiting else ""


def _best(progress: RunProgress) -> RenderableType:
    best = progress.experiment.status.current_optimal_trial
    metric = metric_of(progress.experiment)
    values = " ".join(f"{a.name}={short(a.value)}" for a in best.parameter_assignments)
    text = Text("best so far  ", style="dim")
    text.append(f"{metric}={short(best_value(progress.experiment) or '')}", style="bold green")
    text.append(f"  {values}  ({best.best_trial_name})", style="default")
    return text


def _pareto_set(progress: RunProgress) -> Iterator[RenderableType]:
    """Yield the hypervolume of the Pareto set, and a few of its trials."""
    trials = pareto_trials(progress.experiment)
    if not trials:
        return
    text = Text("best so far  ", style="dim")
    text.append(pareto_words(progress.experiment), style="bold green")
    yield text
    table = Table(box=None, pad_edge=False, header_style="dim")
    for trial in trials[:: max(1, -(-len(trials) // _SHOWN_BEST))]:
        table.add_row(*map(Text, ("", objective_text(trial) or "", parameters_of(trial), f"({trial.name})")))
    yield table
