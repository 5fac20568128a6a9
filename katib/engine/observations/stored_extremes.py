"""The best readings of each trial and metric, stored beside its log for `katib.engine.observations.best`.

Updated by every report of this log, in its transaction and under the lock of its trial. A trial without such a row,
older than the table or reported by Katib's DB manager, is summarized on demand. Readings that Katib's DB manager adds
to a trial with a row are not noticed here; both should not serve one trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from katib.engine.observations.extremes import Extremes, extremes_of
from katib.engine.observations.tables import observation_extremes as table
from katib.model.metrics import MetricLog
from katib.model.types import Metric

_NAMES_AT_ONCE = 1_000

Summarize = Callable[[Connection, str, str], Metric | None]
"""Returns the summary of a trial's metric from its readings."""


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
    """Return the stored extremes of a trial, by metric."""
    return {metric: found for (_, metric), found in _known(connection, [trial_name]).items()}


def _by_metric(rows: Iterable[Any]) -> dict[tuple[str, str], Extremes]:
    return {(row.trial_name, row.metric_name): Extremes(*row[2:]) for row in rows}
