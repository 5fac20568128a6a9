"""Report of a replay of early stopping: the trials that would have been stopped, and the work saved. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from katib.model.metrics import ZERO_TIME, MetricLog, is_usable
from katib.model.summary import observation_of, with_means
from katib.model.trials import may_be_best, metric_text, ran_seconds, trial_state
from katib.model.types import CAMEL_CASE, ObjectiveSpec, ObjectiveType, TrialState
from katib.service.tuning.states import objective_value, state_of

if TYPE_CHECKING:
    from katib.model.types import Trial


@dataclass(frozen=True, slots=True)
class Cut:
    """The point at which a trial would have been stopped.

    Attributes:
        place: In words, such as `step 4`.
        readings: How many of its readings would have been kept.
        time: Its time; None if readings carry none.
    """

    place: str
    reason: str
    readings: int
    time: datetime | None


@dataclass(frozen=True, slots=True)
class StoppedTrial:
    """A trial that would have been stopped.

    Attributes:
        state: Its actual end.
        objective: Its objective value as it was; empty when it has none.
        stopped_at: The point, in words.
        readings: Of its whole log.
        readings_saved: Those that would not have come.
        reason: Why, one sentence.
    """

    __pydantic_config__: ClassVar[Any] = CAMEL_CASE

    name: str
    state: str
    objective: str
    stopped_at: str
    readings: int
    readings_saved: int
    seconds_saved: float
    reason: str


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Effect that an early stopping algorithm would have had on an experiment.

    Attributes:
        trials: How many trials reported the objective metric.
        stopped: Those that would have been stopped, in order of time.
        readings_saved: Of them, those that would not have come.
        seconds: The durations of all trials together.
        best_trial: The best trial as it was; empty when there is none.
        best_survives: Whether it would not have been stopped.
        best_left: The trial that would have been the best.
        best_value_left: Its objective value, by the readings until its stop.
        lost: How much worse that is, as a share of the distance between the best value and the median of all.
    """

    __pydantic_config__: ClassVar[Any] = CAMEL_CASE

    trials: int
    stopped: tuple[StoppedTrial, ...]
    readings: int
    readings_saved: int
    seconds: float
    seconds_saved: float
    best_trial: str
    best_value: str
    best_survives: bool
    best_left: str
    best_value_left: str
    lost: float


@dataclass(frozen=True, slots=True)
class Compared:
    """Effect that an early stopping algorithm would have had on several experiments.

    Attributes:
        algorithm: Its name; with the settings that it has by default.
        trials: How many trials reported the objective metric.
        stopped: How many of them would have been stopped.
        saved: Share of all readings that would not have come.
        lost: How much worse the best value would be, as a share of its distance from the median of all trials; the mean
            over the experiments.
        kept: In how many experiments the best trial would have survived.
    """

    __pydantic_config__: ClassVar[Any] = CAMEL_CASE

    algorithm: str
    trials: int
    stopped: int
    saved: float
    lost: float
    kept: int


HARMLESS = 0.01
"""A loss that is as good as none."""


def compared(algorithm: str, reports: Sequence[ReplayReport]) -> Compared:
    """Return the effect of an algorithm on several experiments."""
    readings = sum(report.readings for report in reports)
    return Compared(
        algorithm=algorithm,
        trials=sum(report.trials for report in reports),
        stopped=sum(len(report.stopped) for report in reports),
        saved=sum(report.readings_saved for report in reports) / max(readings, 1),
        lost=sum(report.lost for report in reports) / max(len(reports), 1),
        kept=sum(report.best_survives for report in reports),
    )


def recommended(found: Sequence[Compared]) -> Compared | None:
    """Return the algorithm that would have saved most of those that would have lost nothing; None if none saves."""
    return max(
        (one for one in found if one.lost <= HARMLESS and one.saved > 0), key=lambda one: one.saved, default=None
    )


def report_of(
    objective: ObjectiveSpec,
    trials: Iterable[Trial],
    readings: Mapping[str, Sequence[MetricLog]],
    cuts: Mapping[str, Cut],
) -> ReplayReport:
    """Return the savings of the cuts.

    Args:
        readings: Of the objective metric, by name of the trial, in the order of the curve.
        cuts: By name of the trial, in order of time.
    """
    found = {trial.name: trial for trial in trials if readings.get(trial.name)}
    stopped = tuple(_stopped(found[name], readings[name], cut) for name, cut in cuts.items() if name in found)
    before = {name: _value(objective, readings[name]) for name in found if _may_be_best(found[name], None)}
    after = {
        name: _value(objective, readings[name][: None if cut is None else cut.readings])
        for name in found
        if _may_be_best(found[name], cut := cuts.get(name))
    }
    best, best_left = _best(objective, before), _best(objective, after)
    return ReplayReport(
        trials=len(found),
        stopped=stopped,
        readings=sum(len(readings[name]) for name in found),
        readings_saved=sum(trial.readings_saved for trial in stopped),
        seconds=sum(_seconds(trial, readings[name]) for name, trial in found.items()),
        seconds_saved=sum(trial.seconds_saved for trial in stopped),
        best_trial=best,
        best_value=before.get(best, ""),
        best_survives=bool(best) and best not in cuts,
        best_left=best_left,
        best_value_left=after.get(best_left, ""),
        lost=_lost(before.values(), before.get(best, ""), after.get(best_left, "")),
    )


def _stopped(trial: Trial, readings: Sequence[MetricLog], cut: Cut) -> StoppedTrial:
    whole = _seconds(trial, readings)
    start = _start(trial, readings)
    kept = whole if cut.time is None or start is None else (cut.time - start).total_seconds()
    return StoppedTrial(
        name=trial.name,
        state=state_of(trial),
        objective=objective_value(trial) or "",
        stopped_at=cut.place,
        readings=len(readings),
        readings_saved=len(readings) - cut.readings,
        seconds_saved=round(min(max(whole - kept, 0.0), whole), 3),
        reason=cut.reason,
    )


def _may_be_best(trial: Trial, cut: Cut | None) -> bool:
    """Return whether a trial counts as it was, or as a cut leaves it."""
    state = trial_state(trial) if cut is None else TrialState.EARLY_STOPPED
    return may_be_best(trial, state)


def _value(objective: ObjectiveSpec, readings: Sequence[MetricLog]) -> str:
    """Return the objective value of a trial that reported this; empty without a usable one."""
    name = objective.objective_metric_name
    observation = observation_of([name], ((name, reading.value) for reading in readings))
    observation = with_means(objective, observation, lambda _, count: readings[-count:])
    text = metric_text(objective, observation)
    return text if text is not None and is_usable(text) else ""


def _lost(values: Iterable[str], best: str, left: str) -> float:
    """Return how much worse a value is than the best, as a share of the distance between that and the median."""
    if not best or not left or best == left:
        return 0.0
    distance = abs(statistics.median(float(text) for text in values if text) - float(best))
    return abs(float(left) - float(best)) / distance if distance else 1.0


def _best(objective: ObjectiveSpec, values: Mapping[str, str]) -> str:
    """Return the trial with the best value, the first by name of equal ones; empty when none has any."""
    sign = -1 if objective.type == ObjectiveType.MAXIMIZE else 1
    return min((name for name, text in values.items() if text), key=lambda n: (sign * float(values[n]), n), default="")


def _seconds(trial: Trial, readings: Sequence[MetricLog]) -> float:
    """Return how long a trial ran, by its last reading if its end is unknown."""
    if (ran := ran_seconds(trial)) is not None:
        return ran
    start = _start(trial, readings)
    end = trial.status.completion_time or _time(readings[-1])
    return 0.0 if start is None or end is None else max((end - start).total_seconds(), 0.0)


def _start(trial: Trial, readings: Sequence[MetricLog]) -> datetime | None:
    return trial.status.start_time or _time(readings[0])


def _time(reading: MetricLog) -> datetime | None:
    return None if reading.time == ZERO_TIME else reading.time.astimezone(UTC)
