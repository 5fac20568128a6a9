"""Summary of a metric: the smallest, largest and latest of its readings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean

from msgspec import structs

from katib.model.metrics import BestTrial, MetricLog, is_usable, parse_value
from katib.model.trials import metric_text
from katib.model.types import UNAVAILABLE, Metric, MetricStrategy, MetricValue, ObjectiveSpec, Observation
from katib.model.types.words import mean_count


@dataclass(slots=True)
class Summary:
    """Folds the readings of one metric, in the order of its curve, into its summary. Constant memory.

    Values keep the printed text. The first one of equal numbers counts. A value that is not a finite number is never
    the smallest or largest, but may be the latest.
    """

    min: str = UNAVAILABLE
    max: str = UNAVAILABLE
    latest: str = UNAVAILABLE
    _low: float = 0.0
    _high: float = 0.0

    def add(self, text: str) -> None:
        self.latest = text
        try:
            number = float(text)
        except ValueError:
            return
        first = self.min is UNAVAILABLE
        # `float` accepts more than usable numbers, but only a new extreme is worth the exact check.
        if not (first or number < self._low or number > self._high) or not is_usable(text):
            return
        if first or number < self._low:
            self.min, self._low = text, number
        if first or number > self._high:
            self.max, self._high = text, number

    def metric(self, name: str) -> Metric:
        return Metric(name=name, min=self.min, max=self.max, latest=self.latest)


def observation_of(metrics: Sequence[str], readings: Iterable[tuple[str, str]]) -> Observation | None:
    """Summarize (name, value) pairs, those of each metric in the order of its curve.

    Returns:
        The summaries of these metrics in this order; None if the first one has no reading.
    """
    summaries: defaultdict[str, Summary] = defaultdict(Summary)
    wanted = dict.fromkeys(metrics)
    for name, value in readings:
        if name in wanted:
            summaries[name].add(value)
    if not metrics or metrics[0] not in summaries:
        return None
    return Observation(metrics=tuple([summaries[name].metric(name) for name in wanted]))


def with_means(
    objective: ObjectiveSpec, observation: Observation | None, read: Callable[[str, int], Iterable[MetricLog]]
) -> Observation | None:
    """Return an observation with the means that strategies require.

    Args:
        objective: With the strategies.
        observation: Without the means.
        read: Returns the last readings of a metric, as many as given, or all for 0.
    """
    counts = {s.name: count for s in objective.metric_strategies if (count := mean_count(s.value)) is not None}
    if observation is None or not counts:
        return observation
    metrics = [
        structs.replace(metric, mean=_mean([one.value for one in read(metric.name, counts[metric.name])]))
        if metric.name in counts
        else metric
        for metric in observation.metrics
    ]
    return structs.replace(observation, metrics=tuple(metrics))


def _mean(texts: Sequence[str]) -> str:
    """Return the mean of readings; NaN if one of them is not a finite number."""
    if not texts:
        return UNAVAILABLE
    if not all(map(is_usable, texts)):
        return "nan"
    return repr(fmean(map(float, texts)))


def observation_with(metrics: Sequence[str], summaries: Iterable[Metric]) -> Observation | None:
    """Return the observation of these metrics from the summaries of those that have a reading, in any order.

    Returns:
        A summary for each metric in this order; None if there is none for the first one.
    """
    found = {metric.name: metric for metric in summaries}
    if not metrics or metrics[0] not in found:
        return None
    return Observation(metrics=tuple([found.get(name) or Summary().metric(name) for name in dict.fromkeys(metrics)]))


def best_of(summaries: Mapping[str, Metric], *, maximize: bool) -> BestTrial | None:
    """Return the trial whose summary has the smallest min, or the largest max; the first name of equal ones."""
    usable = {name: found for name, found in summaries.items() if found.min != UNAVAILABLE}
    if not usable:
        return None
    if maximize:
        name = min(usable, key=lambda trial: (-float(usable[trial].max), trial))
        return BestTrial(name, usable[name].max)
    name = min(usable, key=lambda trial: (float(usable[trial].min), trial))
    return BestTrial(name, usable[name].min)


# Readings of additional metrics at the best reading of the objective: the values of the model that is kept. Pure.
#
# The reading of another metric that belongs to a reading of the objective is found by the first applicable rule:
#
# 1. By step: the reading of the same step, else of the step before, else the first one of a later step.
# 2. By position: if both metrics have equally many readings, the third belongs to the third, unless its time is outside
#    the interval between the second and the fourth.
# 3. By time: the reading of the same time. If several have that time, as in a log that counts in seconds, the first one
#    belongs to the first one of the objective, and so on.
# 4. The nearest in time, the earlier one of two equally near ones: programs print related values one after the other,
# in
#    either order.

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
