"""Reads for the pages of trials. Failures are reported, and the rest is shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from katib.doors.ui.trial_views import experiment_name, metric_names
from katib.errors import KatibError, UnavailableError
from katib.figures.curves import curve_of
from katib.figures.data import Curve
from katib.figures.trial_curves import MOST_READINGS
from katib.model.types import Experiment, Trial
from katib.service.tuning.reading import metric_values, objective_values
from katib.service.tuning.service import NOW, TuningService
from katib.service.tuning.states import is_completed, state_of

T = TypeVar("T")

MOST_METRICS = 60
_ALL_POINTS = 12_000
"""Readings drawn of all metrics of a trial together, so that an answer stays below some hundred kilobytes."""
_FEWEST_POINTS = 200
_WHOLE = 10_000
"""Readings of a curve up to which all are read, so that non-finite ones are seen, too, and the average is exact."""
_SEEN_READINGS = 200
"""Newest readings that are searched for further metrics besides the experiment's."""


@dataclass(frozen=True, slots=True)
class Attempt(Generic[T]):
    """The result of a read, or the reason of its failure.

    Attributes:
        value: The result, or its substitute.
        problem: A sentence; empty when all went well.
    """

    value: T
    problem: str = ""


def attempt(read: Callable[[], T], otherwise: T) -> Attempt[T]:
    """Return the result of a function, or a substitute with the reason."""
    try:
        return Attempt(read())
    except KatibError as error:
        return Attempt(otherwise, str(error))


def read_experiment(service: TuningService, trial: Trial) -> Experiment | None:
    """Return the experiment of a trial; None if it is deleted or may not be read.

    Raises:
        UnavailableError: The service cannot be reached.
    """
    try:
        return service.get(Experiment, trial.namespace, experiment_name(trial))
    except UnavailableError:
        raise
    except KatibError:
        return None


def started_at(trial: Trial) -> float:
    """Return the start time of a trial, in seconds since 1970; NaN before."""
    moment = trial.status.start_time
    return math.nan if moment is None else moment.timestamp()


def read_metric_names(service: TuningService, trial: Trial) -> list[str]:
    """Return the metrics of a trial, the objectives first, 60 at most; of one that has ended those with readings."""
    seen = {reading.name for reading in service.metrics(trial.namespace, trial.name, limit=_SEEN_READINGS)}
    names = metric_names(trial, sorted(seen))
    if is_completed(trial):
        seen.update(name for name, _ in metric_values(trial))
        names = [name for name in names if name in seen]
    return names[:MOST_METRICS]


def latest_values(service: TuningService, trial: Trial) -> dict[str, str]:
    """Return the newest reading of each objective of a running trial."""
    if state_of(trial) != "Running":
        return {}
    names = [name for name, _ in objective_values(trial)]
    newest = {name: service.metrics(trial.namespace, trial.name, metric=name, limit=1) for name in names}
    return {name: readings[-1].value for name, readings in newest.items() if readings}


def read_curve(service: TuningService, trial: Trial, metric: str) -> Curve:
    """Return the curve of a metric: all readings of a usual one, the extremes of a very long one."""
    namespace, name = trial.namespace, trial.name
    readings = service.metrics(namespace, name, metric=metric, limit=_WHOLE + 1)
    if len(readings) <= _WHOLE:
        return curve_of(readings, started_at(trial))
    thinned = service.curve(namespace, name, metric=metric, points=MOST_READINGS)
    return replace(curve_of(thinned, started_at(trial)), is_whole=False)


def read_curves(service: TuningService, trial: Trial) -> tuple[Mapping[str, Curve], str]:
    """Return the curves of all metrics of a trial, and a cursor after their readings.

    Readings that arrive in between are in the curves and after the cursor, too: none is lost, and a reader that appends
    sees them twice at most, at the same place.
    """
    cursor = service.readings(trial.namespace, trial.name, since=NOW).cursor
    names = read_metric_names(service, trial)
    return {metric: read_curve(service, trial, metric) for metric in names}, cursor


def points_of_each(metrics: Collection[str]) -> int:
    """Return the number of readings drawn of each metric."""
    return min(MOST_READINGS, max(_FEWEST_POINTS, _ALL_POINTS // max(1, len(metrics))))
