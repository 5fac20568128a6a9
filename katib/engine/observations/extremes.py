"""The best readings of each trial and metric, stored beside its log for `katib.engine.observations.best`.

Updated by every report of this log, in its transaction and under the lock of its trial. A trial without such a row,
older than the table or reported by Katib's DB manager, is summarized on demand. Readings that Katib's DB manager adds
to a trial with a row are not noticed here; both should not serve one trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, insert, select, update

from katib.engine.observations.tables import observation_extremes as table
from katib.model.metrics import MetricLog, is_usable
from katib.model.types import UNAVAILABLE, Metric

_NAMES_AT_ONCE = 1_000

Summarize = Callable[[Connection, str, str], Metric | None]
"""Returns the summary of a trial's metric from its readings."""


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


def keep(connection: Connection, batch: Mapping[str, Sequence[MetricLog]], summarize: Summarize) -> None:
    """Update the extremes for readings to be appended; the caller holds the locks of the trials."""
    found = {
        (trial_name, name): extremes
        for trial_name, logs in batch.items()
        for name, extremes in extremes_of(logs).items()
    }
    known = _known(connection, sorted({trial_name for trial_name, _ in found}))
    added, changed = [], []
    for key, extremes in found.items():
        before = known.get(key)
        if before is None:
            earlier = Extremes.of_summary(summarize(connection, *key))
            merged = extremes if earlier is None else earlier.with_later(extremes)
            added.append({"trial_name": key[0], "metric_name": key[1], **merged._asdict()})
        elif (merged := before.with_later(extremes)) != before:
            changed.append({"of_trial": key[0], "of_metric": key[1], **merged._asdict()})
    if added:
        connection.execute(insert(table), added)
    if changed:
        connection.execute(_UPDATE, changed)


_UPDATE = (
    update(table)
    .where(table.c.trial_name == bindparam("of_trial"), table.c.metric_name == bindparam("of_metric"))
    .values({name: bindparam(name) for name in Extremes._fields})
)
_OF_TRIAL = select(table).where(table.c.trial_name == bindparam("name"))
_OF_TRIALS = select(table).where(table.c.trial_name.in_(bindparam("names", expanding=True)))


def _known(connection: Connection, trial_names: Sequence[str]) -> dict[tuple[str, str], Extremes]:
    if len(trial_names) == 1:  # the usual case; SQLAlchemy would render the list into the statement each time
        (name,) = trial_names
        return _by_metric(connection.execute(_OF_TRIAL, {"name": name}))
    rows: list[Any] = []
    for first in range(0, len(trial_names), _NAMES_AT_ONCE):
        rows += connection.execute(_OF_TRIALS, {"names": trial_names[first : first + _NAMES_AT_ONCE]})
    return _by_metric(rows)


def of_trial(connection: Connection, trial_name: str) -> dict[str, Extremes]:
    return {metric: found for (_, metric), found in _known(connection, [trial_name]).items()}


def _by_metric(rows: Iterable[Any]) -> dict[tuple[str, str], Extremes]:
    return {(row.trial_name, row.metric_name): Extremes(*row[2:]) for row in rows}
