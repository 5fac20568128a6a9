"""Readings of additional metrics at the best reading of the objective: the values of the model that is kept. Pure.

The reading of another metric that belongs to a reading of the objective is found by the first applicable rule:

1. By step: the reading of the same step, else of the step before, else the first one of a later step.
2. By position: if both metrics have equally many readings, the third belongs to the third, unless its time is outside
   the interval between the second and the fourth.
3. By time: the reading of the same time. If several have that time, as in a log that counts in seconds, the first one
   belongs to the first one of the objective, and so on.
4. The nearest in time, the earlier one of two equally near ones: programs print related values one after the other, in
   either order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec import structs

from katib.model.metrics import MetricLog, parse_value
from katib.model.trials import metric_text
from katib.model.types import MetricStrategy, MetricValue, ObjectiveSpec, Observation

POINTS = 4_000
"""Maximum number of readings used of a longer curve, including the best one (`katib.model.thinning`)."""

Curve = Callable[[str], Sequence[MetricLog]]
"""Returns the readings of a metric in the order of its curve."""


def with_at_best(objective: ObjectiveSpec, observation: Observation | None, curve: Curve) -> Observation | None:
    """Return an observation with the readings of additional metrics at the first best reading of the objective.

    Objectives and bounded metrics are left out: each has its own decisive reading, which is the one to show.
    """
    if not objective.additional_metric_names:
        return observation
    decisive = {*(term.name for term in objective.terms), *(bounds.metric_name for bounds in objective.constraints)}
    others = [name for name in objective.metric_names if name not in decisive]
    value = metric_text(objective, observation) if others else None
    if observation is None or value is None:
        return observation
    readings = curve(objective.objective_metric_name)
    places = [place for place, reading in enumerate(readings) if _is_equal(reading.value, value)]
    if not places:
        return observation
    is_latest = objective.strategy_of(objective.objective_metric_name) == MetricStrategy.LATEST
    place = places[-1 if is_latest else 0]  # the first of equal extremes counts
    found = {name: reading_at(readings, place, curve(name)) for name in others}
    at_best = tuple(MetricValue(name=name, value=reading.value) for name, reading in found.items() if reading)
    return structs.replace(observation, at_best=at_best)


def reading_at(objective: Sequence[MetricLog], place: int, others: Sequence[MetricLog]) -> MetricLog | None:
    """Return the reading of another metric that belongs to a reading of the objective; None if there is none."""
    best = objective[place]
    stepped = [reading for reading in others if reading.step is not None]
    if best.step is not None and stepped:
        return next((reading for reading in reversed(stepped) if (reading.step or 0) <= best.step), stepped[0])
    if len(others) == len(objective):
        twin, around = others[place], objective[max(place - 1, 0) : place + 2]
        if (place == 0 or around[0].time <= twin.time) and (
            place == len(objective) - 1 or twin.time <= around[-1].time
        ):
            return twin
    same = [reading for reading in others if reading.time == best.time]
    if same:
        rank = sum(reading.time == best.time for reading in objective[:place])
        return same[min(rank, len(same) - 1)]
    before = max((reading for reading in reversed(others) if reading.time < best.time), key=_time, default=None)
    after = min((reading for reading in others if reading.time > best.time), key=_time, default=None)
    if before is None or after is None:
        return before or after
    return before if best.time - before.time <= after.time - best.time else after


def _time(reading: MetricLog) -> datetime:
    return reading.time


def _is_equal(text: str, other: str) -> bool:
    return text == other or (parse_value(text) is not None and parse_value(text) == parse_value(other))
