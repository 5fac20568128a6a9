"""Summary of a metric: the smallest, largest and latest of its readings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from msgspec import structs

from katib.model.metrics import BestTrial, MetricLog, is_usable
from katib.model.types import UNAVAILABLE, Metric, ObjectiveSpec, Observation
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
