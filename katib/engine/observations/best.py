"""The best of many trials, found without a query per trial.

Theory of operation. The stored extremes of a metric are indexed by number. Index entries are read in order until one
belongs to a wanted trial: most searches are for most trials of a metric, so that takes one page. If none of them does,
the extremes of the wanted trials are looked up. Trials without stored extremes are found by one statement, and
summarized one by one if they have readings at all: most have none, as they failed or have not reported yet.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import takewhile

from sqlalchemy import ColumnElement, Connection, TextClause, func, select, text

from katib.engine.observations.extremes import Extremes, are_kept_of
from katib.engine.observations.stored_extremes import Summarize
from katib.engine.observations.tables import observation_extremes as table
from katib.model.metrics import BestTrial

_ENTRIES = 200
"""Index entries read before the trials are looked up: less than a millisecond."""

_NAMES_AT_ONCE = 1_000
"""For dialects with a parameter per name."""

_NAMES_IN_ONE_VALUE = 20_000

_SEPARATORS = range(0x1F, sys.maxunicode)
"""Candidates for a separator that no name contains."""

_NAMES = {
    "sqlite": "SELECT value AS name FROM json_each(:names)",
    # The driver would check each name of an array, which takes longer than the search.
    "postgresql": "SELECT unnest(string_to_array(CAST(:names AS text), CAST(:separator AS text))) AS name",
}
_NOT_KEPT = {
    dialect: f"SELECT name FROM ({names}) AS wanted WHERE NOT EXISTS (SELECT 1 FROM {table.name} AS kept "  # noqa: S608 - constants
    "WHERE kept.trial_name = name AND kept.metric_name = :metric_name)"
    for dialect, names in _NAMES.items()
}
# LIMIT makes it one index lookup per name; without it, PostgreSQL may read the whole log.
_REPORTED = {
    dialect: f"SELECT name FROM ({names}) AS wanted WHERE (SELECT 1 FROM observation_logs AS logs "  # noqa: S608 - constants
    "WHERE logs.trial_name = name AND logs.metric_name = :metric_name LIMIT 1) IS NOT NULL"
    for dialect, names in _NAMES.items()
}


def best_of(
    connection: Connection,
    trial_names: Sequence[str],
    metric_name: str,
    summarize: Summarize,
    *,
    maximize: bool,
    is_kept: bool,
) -> BestTrial | None:
    """Return the trial with the best reading; see `katib.model.metrics.ObservationLog.best`."""
    names = list(dict.fromkeys(trial_names))
    candidates: list[tuple[float, str, str]] = []  # cost, trial, text
    missing = names
    if is_kept and are_kept_of(metric_name):
        missing = _without_extremes(connection, names, metric_name)
        if len(missing) < len(names):
            candidates += _best_kept(connection, names, metric_name, maximize=maximize)
    for name in missing:
        extremes = Extremes.of_summary(summarize(connection, name, metric_name))
        if extremes is not None:
            cost, best_value = (-extremes.high, extremes.high_value) if maximize else extremes[:2]
            candidates.append((cost, name, best_value))
    return BestTrial(*min(candidates)[1:]) if candidates else None


def _best_kept(
    connection: Connection, names: Sequence[str], metric_name: str, *, maximize: bool
) -> Iterator[tuple[float, str, str]]:
    """Yield cost, name and text of the best trials with stored extremes, possibly one per part."""
    number, value = (table.c.high, table.c.high_value) if maximize else (table.c.low, table.c.low_value)
    of_metric = table.c.metric_name == metric_name
    in_order = number.desc() if maximize else number
    query = select(number, table.c.trial_name, value).where(of_metric).order_by(in_order).limit(_ENTRIES)
    rows = [tuple(row) for row in connection.execute(query)]
    wanted = set(names)
    found = [row for row in rows if row[1] in wanted]
    ties = list(takewhile(lambda row: row[0] == found[0][0], found))
    is_whole = len(rows) < _ENTRIES or (bool(found) and rows[-1][0] != found[0][0])
    if is_whole:
        yield from (_cost(row, maximize=maximize) for row in ties)
        return
    dialect = connection.dialect.name
    for some in _parts(names, dialect):
        of_trials = (of_metric, _is_among(dialect, some))
        best = connection.execute(select((func.max if maximize else func.min)(number)).where(*of_trials)).scalar()
        if best is not None:
            first = select(number, table.c.trial_name, value).where(*of_trials, number == best)
            yield from (_cost(tuple(row), maximize=maximize) for row in connection.execute(first))


def _cost(row: tuple[float, str, str], *, maximize: bool) -> tuple[float, str, str]:
    number, name, value = row
    return (-number if maximize else number, name, value)


def _without_extremes(connection: Connection, names: Sequence[str], metric_name: str) -> list[str]:
    """Return the trials without stored extremes; if that is cheap to know, only those with readings."""
    dialect = connection.dialect.name
    missing: list[str] = []
    for some in _parts(names, dialect):
        if dialect not in _NAMES:
            of_trials = (table.c.metric_name == metric_name, _is_among(dialect, some))
            kept = set(connection.execute(select(table.c.trial_name).where(*of_trials)).scalars())
            missing += [name for name in some if name not in kept]
            continue
        for statement in (_NOT_KEPT[dialect], _REPORTED[dialect]):
            values = {**_in_one_value(dialect, some), "metric_name": metric_name}
            some = list(connection.execute(text(statement), values).scalars()) if some else []  # noqa: PLW2901 - narrowed
        missing += some
    return missing


def _parts(names: Sequence[str], dialect: str) -> Iterator[Sequence[str]]:
    at_once = _NAMES_IN_ONE_VALUE if dialect in _NAMES else _NAMES_AT_ONCE
    return (names[first : first + at_once] for first in range(0, len(names), at_once))


def _is_among(dialect: str, names: Sequence[str]) -> ColumnElement[bool] | TextClause:
    """Return the condition that a trial is one of these; with a single parameter if many cost more than the search."""
    if dialect in _NAMES:
        among = f"{table.name}.trial_name IN ({_NAMES[dialect]})"
        return text(among).bindparams(**_in_one_value(dialect, names))
    return table.c.trial_name.in_(names)


def _in_one_value(dialect: str, names: Sequence[str]) -> dict[str, str]:
    if dialect == "sqlite":
        return {"names": json.dumps(names)}
    whole = "\n".join(names)
    separator = next(character for character in map(chr, _SEPARATORS) if character not in whole)
    return {"names": separator.join(names), "separator": separator}
