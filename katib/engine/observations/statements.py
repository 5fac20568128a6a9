"""Statements of the log for the layout of its table: a table of Katib's that may not be changed has no steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    Executable,
    Select,
    bindparam,
    literal_column,
    select,
    union_all,
)

from katib.engine.observations.dialects import metric_is
from katib.engine.observations.sqlite_tables import NO_STEP
from katib.engine.observations.tables import TableLayout
from katib.engine.observations.tables import observation_logs as table
from katib.model.metrics import BEFORE_THE_LAST, Change, MetricLog

FETCH_ROWS = 10_000

CHANGES = 20_000
"""Approximate number of changes in a response; each trial gets a share, so that none waits for another's long log."""

_TRIALS_AT_ONCE = 100
"""Trials per statement: SQLite allows 500 parts."""


class Statements:
    """Queries of a table.

    Attributes:
        curve: The columns that order readings.
        readings: Selects the columns of `reading_of`, of all trials.
    """

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout
        self.curve = _curve(layout)
        self.readings = select(table.c.time, table.c.metric_name, table.c.value, _step(layout), table.c.id)

    @staticmethod
    def logs(rows: Iterable[Sequence[Any]]) -> list[MetricLog]:
        return list(map(reading_of, rows))

    def values(self, trial_name: str, metrics: Sequence[str]) -> tuple[Select[Any], dict[str, Any]]:
        """Return the query of names and values of these metrics, each metric's in order, and its parameters."""
        names = {f"metric_{number}": name for number, name in enumerate(metrics)}
        return _values(self._layout, len(metrics)), {"trial_name": trial_name, **names}

    def some_values(self, trial_name: str, metrics: Sequence[str], count: int) -> tuple[Select[Any], dict[str, Any]]:
        """Return the same for up to a number of readings."""
        _, parameters = self.values(trial_name, metrics)
        return _some_values(self._layout, len(metrics)), {**parameters, "count": count}

    def newest(self, limit: int) -> Select[Any]:
        """Return the query of the last readings of a curve, the last one first."""
        return self.readings.order_by(*(column.desc() for column in self.curve)).limit(limit)

    def changes(self, connection: Connection, cursors: Mapping[str, int], metric_name: str) -> Iterator[Change]:
        """Yield the readings after the cursors."""
        wanted = list(cursors.items())
        share = max(1, CHANGES // max(1, len(wanted)))
        for first in range(0, len(wanted), _TRIALS_AT_ONCE):
            some = wanted[first : first + _TRIALS_AT_ONCE]
            values: dict[str, Any] = {"share": share, **({"metric_name": metric_name} if metric_name else {})}
            for number, (trial_name, cursor) in enumerate(some):
                values |= {f"trial_{number}": trial_name, f"cursor_{number}": cursor}
            only_last = tuple(cursor == BEFORE_THE_LAST for _, cursor in some)
            statement = _changes(self._layout, connection.dialect.name, only_last, of_all_metrics=not metric_name)
            rows = connection.execute(statement, values)
            for row in rows:
                yield Change(row.trial_name, row.id, reading_of(row[1:]))


def reading_of(row: Sequence[Any]) -> MetricLog:
    time, name, value, step, _ = row
    return MetricLog(time, name, value, None if step < 0 else step)


def _curve(layout: TableLayout) -> tuple[ColumnElement[Any], ...]:
    return (table.c.step, table.c.time, table.c.id) if layout.has_steps else (table.c.time, table.c.id)


@lru_cache
def _values(layout: TableLayout, metric_count: int) -> Select[Any]:
    """Return the statement for a number of metrics.

    Built once per number: for a trial of one reading, building takes longer than reading, especially if SQLAlchemy
    renders the names into the statement each time.
    """
    metrics: list[BindParameter[str]] = [bindparam(f"metric_{number}") for number in range(metric_count)]
    return (
        select(table.c.metric_name, table.c.value)
        .where(table.c.trial_name == bindparam("trial_name"), table.c.metric_name.in_(metrics))
        .order_by(table.c.metric_name, *_curve(layout))
        .execution_options(yield_per=FETCH_ROWS)
    )


@lru_cache
def _some_values(layout: TableLayout, metric_count: int) -> Select[Any]:
    return _values(layout, metric_count).limit(bindparam("count"))


@lru_cache(maxsize=2 * _TRIALS_AT_ONCE)
def _changes(layout: TableLayout, dialect: str, only_last: tuple[bool, ...], *, of_all_metrics: bool) -> Executable:
    """Return the statement with one part per trial, so that every database uses the index.

    The sum keeps a database from scanning the rows of all trials in order of their ids.
    """
    place = table.c.id + 0
    columns = (table.c.trial_name, table.c.time, table.c.metric_name, table.c.value, _step(layout), table.c.id)
    is_metric = () if of_all_metrics else tuple(metric_is(dialect, bindparam("metric_name")))
    parts = []
    for number, is_last in enumerate(only_last):
        is_new = (table.c.trial_name == bindparam(f"trial_{number}"), place > bindparam(f"cursor_{number}"))
        part = select(*columns).where(*is_new, *is_metric)
        part = part.order_by(place.desc()).limit(1) if is_last else part.order_by(place).limit(bindparam("share"))
        parts.append(select(part.subquery()))
    return union_all(*parts) if len(parts) > 1 else parts[0]


def _step(layout: TableLayout) -> ColumnElement[int]:
    return table.c.step if layout.has_steps else literal_column(str(NO_STEP), BigInteger).label("step")
