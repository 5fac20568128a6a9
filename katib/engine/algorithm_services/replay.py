"""Replay of a built-in early stopping algorithm over completed trials, in this process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from katib.errors import InvalidError, invalid
from katib.model.algorithms import check_settings
from katib.model.metrics import ZERO_TIME, MetricLog, parse_value
from katib.model.types import AlgorithmSetting, ObjectiveSpec, ObjectiveType
from katib.model.wording import did_you_mean, shown
from suggestion_services.algorithms import ENTRIES, ListedAlgorithm
from suggestion_services.early_stopping import CurvePoint, StoppingAlgorithm, StoppingProblem, replay
from suggestion_services.early_stopping.algorithm import settings_of
from suggestion_services.early_stopping.replay import Recording


@dataclass(frozen=True, slots=True)
class RecordedTrial:
    """A completed trial.

    Attributes:
        succeeded: Whether it was completed without being stopped.
        readings: Readings of the objective metric, in the order of the curve.
    """

    name: str
    succeeded: bool
    readings: Sequence[MetricLog]


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """A trial that would have been stopped.

    Attributes:
        reason: The reason, one sentence.
        time: Time of the stop; None if readings carry no time.
        readings: Number of its readings up to then.
        resource: The step of the last one of them, or its number.
        by_number: Whether `resource` is the number.
    """

    trial_name: str
    reason: str
    time: datetime | None
    readings: int
    resource: int
    by_number: bool


def stopping_names() -> list[str]:
    return [entry.info.name for entry in ENTRIES if entry.info.early_stopping]


def early_stops(
    name: str, settings: Sequence[AlgorithmSetting], objective: ObjectiveSpec, trials: Sequence[RecordedTrial]
) -> list[EarlyStop]:
    """Return the trials that would have been stopped, in order of time, each judged by the readings up to then.

    If readings carry no time, trials are judged as if all had started together and reported at the same pace.

    Raises:
        InvalidError: There is no built-in early stopping algorithm of that name, or its settings are wrong.
    """
    maximize = objective.type == ObjectiveType.MAXIMIZE
    algorithm = _algorithm(name, settings, objective.objective_metric_name, maximize=maximize)
    timed = all(reading.time != ZERO_TIME for trial in trials for reading in trial.readings)
    recordings = {trial.name: _recording(trial, -1.0 if maximize else 1.0, timed=timed) for trial in trials}
    return [
        EarlyStop(
            found.verdict.trial_name,
            found.verdict.reason,
            datetime.fromtimestamp(found.time_micros / 1e6, UTC) if timed else None,
            found.readings,
            found.verdict.resource,
            recordings[found.verdict.trial_name].by_number,
        )
        for found in replay(algorithm, recordings.values())
    ]


def _algorithm(name: str, settings: Sequence[AlgorithmSetting], metric: str, *, maximize: bool) -> StoppingAlgorithm:
    entry = _entry(name)
    errors = check_settings(entry.info, settings, "spec.earlyStopping.algorithmSettings")
    if errors:
        raise InvalidError(errors)
    cls: type[StoppingAlgorithm] = entry.load()
    return cls(StoppingProblem(metric, maximize=maximize, settings=settings_of(cls, entry.info, settings)))


def _entry(name: str) -> ListedAlgorithm:
    known = {entry.info.name: entry for entry in ENTRIES if entry.info.early_stopping}
    if name not in known:
        cause = f"{shown(name)} is not an early stopping algorithm that can be replayed"
        raise invalid("spec.earlyStopping.algorithmName", cause, did_you_mean(name, known), "algorithm-unknown")
    return known[name]


def _recording(trial: RecordedTrial, sign: float, *, timed: bool) -> Recording:
    by_number = all(reading.step is None for reading in trial.readings)
    points = []
    for number, reading in enumerate(trial.readings, 1):
        value = parse_value(reading.value)
        resource = number if by_number else reading.step or 0
        micros = round(reading.time.timestamp() * 1e6) if timed else number
        points.append((micros, CurvePoint(resource, math.nan if value is None else sign * value)))
    return Recording(trial.name, points, succeeded=trial.succeeded, by_number=by_number)
