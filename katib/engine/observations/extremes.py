"""The best readings of a trial and metric among some readings."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from typing import NamedTuple

from katib.model.metrics import MetricLog, is_usable
from katib.model.types import UNAVAILABLE, Metric


class Extremes(NamedTuple):
    """The smallest and the largest usable number of a metric, and their texts; among equal ones the first reported."""

    low: float
    low_value: str
    high: float
    high_value: str

    @classmethod
    def of_summary(cls, metric: Metric | None) -> Extremes | None:
        """Return the extremes of a summary; None without a usable number."""
        if metric is None or metric.min == UNAVAILABLE:
            return None
        return cls(float(metric.min), metric.min, float(metric.max), metric.max)

    def with_later(self, later: Extremes) -> Extremes:
        low = later[:2] if later.low < self.low else self[:2]
        high = later[2:] if later.high > self.high else self[2:]
        return Extremes(*low, *high)


def are_kept_of(metric_name: str) -> bool:
    """Return whether extremes of a metric are stored: MySQL ignores trailing blanks of its name."""
    return not metric_name.endswith(" ")


def extremes_of(logs: Sequence[MetricLog]) -> dict[str, Extremes]:
    """Return the extremes of each metric of a batch that has a usable number."""
    values: dict[str, list[str]] = {}
    for log in logs:
        values.setdefault(log.name, []).append(log.value)
    found = {name: _extremes_of(texts) for name, texts in values.items() if are_kept_of(name)}
    return {name: extremes for name, extremes in found.items() if extremes is not None}


def _extremes_of(texts: Sequence[str]) -> Extremes | None:
    # `float` accepts more than usable numbers, but only the extremes need the exact check.
    with suppress(ValueError):
        numbers = list(map(float, texts))
        low, high = min(numbers), max(numbers)
        low_value, high_value = texts[numbers.index(low)], texts[numbers.index(high)]
        if isfinite(sum(numbers)) and is_usable(low_value) and is_usable(high_value):
            return Extremes(low, low_value, high, high_value)
    usable = [text for text in texts if is_usable(text)]
    if not usable:
        return None
    low_value, high_value = min(usable, key=float), max(usable, key=float)
    return Extremes(float(low_value), low_value, float(high_value), high_value)
