"""A run as plain lines, one for each moment: for pipes, files and build servers."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self, TextIO

from katib.cli.columns import duration_of, parameters_of, short
from katib.cli.run.progress import BestChanged, Moment, Progress, TrialEnded, TrialHeldUp, TrialRetried, TrialStarted
from katib.tuning.reading import Json, last_condition, name_of, objective_of, objective_value, state_of


class Lines:
    """Writes each moment as a line."""

    def __init__(self, progress: Progress, stream: TextIO) -> None:
        self._progress = progress
        self._stream = stream

    def __enter__(self) -> Self:
        self._write(header(self._progress.experiment))
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        pass

    def tell(self, moment: Moment) -> None:
        """Write one moment."""
        self._write(f"{time.strftime('%H:%M:%S')} {moment_line(moment, self._progress)}")

    def tick(self) -> None:
        """Do nothing: lines have no clock."""

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


class Silence:
    """Shows nothing, for -q."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        pass

    def tell(self, moment: Moment) -> None:
        """Do nothing."""

    def tick(self) -> None:
        """Do nothing."""


def header(experiment: Json) -> str:
    """Return in one line what an experiment is about."""
    spec, objective = experiment.get("spec", {}), objective_of(experiment)
    goal = f" (goal {objective['goal']:g})" if objective.get("goal") is not None else ""
    limit = spec.get("maxTrialCount")
    trials = f"{limit} trials" if limit is not None else "trials without limit"
    stopping = (spec.get("earlyStopping") or {}).get("algorithmName")
    return (
        f"{name_of(experiment)}: {objective.get('type')} {objective.get('objectiveMetricName')}{goal}, "
        f"{trials}, {spec.get('parallelTrialCount', 1)} at a time, "
        f"{(spec.get('algorithm') or {}).get('algorithmName')}{f' with {stopping}' if stopping else ''}"
    )


def moment_line(moment: Moment, progress: Progress) -> str:
    """Return a moment as a line without its time."""
    metric = objective_of(progress.experiment).get("objectiveMetricName", "")
    if isinstance(moment, TrialStarted):
        return f"{name_of(moment.trial)} started: {parameters_of(moment.trial)}"
    if isinstance(moment, TrialRetried):
        return f"{name_of(moment.trial)} failed and is tried again: {moment.message}"
    if isinstance(moment, TrialHeldUp):
        return f"{name_of(moment.trial)} has to wait: {moment.message}"
    if isinstance(moment, BestChanged):
        return f"best so far is {moment.name}: {metric}={short(moment.value)}"
    return _ended(moment, metric, progress.limit)


def _ended(moment: TrialEnded, metric: str, limit: int | None) -> str:
    trial = moment.trial
    value, state = objective_value(trial), state_of(trial)
    of = f"/{limit}" if limit is not None else ""
    found = f" {metric}={short(value)}," if value is not None else ""
    why = "" if state == "Succeeded" else _why(trial)
    duration = f" in {duration_of(trial)}" if duration_of(trial) else ""
    return (
        f"{name_of(trial)} {_WORDS.get(state, state)}{duration}:{found} {parameters_of(trial)}{why} ({moment.done}{of})"
    )


_WORDS = {
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Killed": "was stopped",
    "EarlyStopped": "was stopped early",
    "MetricsUnavailable": "had no metrics",
}


def _why(trial: Json) -> str:
    message = " ".join(str(last_condition(trial).get("message", "")).split())
    return f"; {message}" if message else ""
