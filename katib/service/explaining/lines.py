"""A run as plain lines, one per event: for pipes, files and build servers."""

from __future__ import annotations

import time
from typing import Self, TextIO

from katib.model.features.repeats.feature import REPEATS
from katib.model.names import REMEDY
from katib.model.trials import waiting_words
from katib.model.types import Experiment, Trial
from katib.model.wording import counted
from katib.service.explaining.progress import (
    BestChanged,
    ExperimentHeldUp,
    IdenticalFailures,
    Moment,
    RunProgress,
    TrialEnded,
    TrialHeldUp,
    TrialRetried,
    TrialStarted,
)
from katib.service.tuning.reading import (
    algorithm_of,
    constraint_words,
    duration_of,
    metric_of,
    objective_text,
    objective_words,
    parameters_of,
    short,
    violates_constraints,
)
from katib.service.tuning.states import early_stop_reason, failure_of, last_condition, state_of


class EventLines:
    """Writes each event as a line."""

    def __init__(self, progress: RunProgress, stream: TextIO) -> None:
        self._progress = progress
        self._stream = stream

    def __enter__(self) -> Self:
        self._write(header(self._progress.experiment))
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tell(self, moment: Moment) -> None:
        self._write(f"{time.strftime('%H:%M:%S')} {moment_line(moment, self._progress)}")

    def tick(self) -> None:
        """Do nothing: lines need no clock."""

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


def header(experiment: Experiment) -> str:
    spec, limit = experiment.spec, experiment.spec.max_trial_count
    trials = counted(limit, "trial") if limit is not None else "trials without limit"
    repeats = REPEATS.read(experiment.metadata.annotations)
    trials += f" (up to {repeats} of each configuration)" if repeats > 1 else ""
    stopping = "" if spec.early_stopping is None else spec.early_stopping.algorithm_name
    return (
        f"{experiment.name}: {objective_words(experiment)}, "
        f"{trials}, {1 if spec.parallel_trial_count is None else spec.parallel_trial_count} at a time, "
        f"{algorithm_of(experiment)}{f' with {stopping}' if stopping else ''}"
    )


def moment_line(moment: Moment, progress: RunProgress) -> str:
    """Return an event as a line without its time."""
    metric = metric_of(progress.experiment)
    if isinstance(moment, TrialStarted):
        happened = "continues" if moment.again else "started"
        return f"{moment.trial.name} {happened}: {parameters_of(moment.trial)}"
    if isinstance(moment, TrialRetried | TrialHeldUp | ExperimentHeldUp):
        return _held_up(moment)
    if isinstance(moment, BestChanged):
        return (
            f"best so far: {moment.pareto}"
            if moment.pareto
            else f"best so far is {moment.name}: {metric}={short(moment.value)}"
        )
    if isinstance(moment, IdenticalFailures):
        trials = "The first trial" if moment.count == 1 else f"The first {moment.count} trials"
        alike = "" if moment.count == 1 else " the same way"
        return f"{trials} failed{alike}: {moment.cause}. {moment.remedy}".rstrip()
    return _ended(moment, progress.limit)


def _held_up(moment: TrialRetried | TrialHeldUp | ExperimentHeldUp) -> str:
    if isinstance(moment, ExperimentHeldUp):
        return f"{moment.experiment.name} waits for {moment.message}"
    if isinstance(moment, TrialHeldUp) and (words := waiting_words(moment.trial)).startswith("waits for "):
        return f"{moment.trial.name} {words}"
    happened = "failed and is tried again" if isinstance(moment, TrialRetried) else "has to wait"
    return f"{moment.trial.name} {happened}: {moment.message}"


def _ended(moment: TrialEnded, limit: int | None) -> str:
    trial = moment.trial
    value, state = objective_text(trial), state_of(trial)
    if state == "Failed":
        return _failed(moment, limit)
    of = f"/{limit}" if limit is not None else ""
    found = f" {value}," if value is not None else ""
    why = "" if state == "Succeeded" else _why(trial)
    why += f"; it does not satisfy {constraint_words(trial)}" if violates_constraints(trial) else ""
    duration = f" in {duration_of(trial)}" if duration_of(trial) else ""
    happened = f"reported no {metric_of(trial)}" if state == "MetricsUnavailable" else _WORDS.get(state, state)
    return f"{trial.name} {happened}{duration}:{found} {parameters_of(trial)}{why} ({moment.done}{of})"


def _failed(moment: TrialEnded, limit: int | None) -> str:
    """Return the end of a failed trial, with the cause before anything else."""
    trial = moment.trial
    cause = " ".join(failure_of(trial).split()) or "no reason was recorded"
    after = f"after {duration_of(trial)} with " if duration_of(trial) else ""
    of = f"/{limit}" if limit is not None else ""
    return f"{trial.name} failed: {cause}; {after}{parameters_of(trial)} ({moment.done}{of})"


_WORDS = {
    "Succeeded": "succeeded",
    "Killed": "was stopped",
    "EarlyStopped": "was stopped early",
}


def _why(trial: Trial) -> str:
    message = early_stop_reason(" ".join(last_condition(trial).message.partition(REMEDY)[0].split()))
    for said_already in ("Metrics are not available: ", "Trial is stopped: "):
        message = message.removeprefix(said_already)
    return f"; {message}" if message else ""
