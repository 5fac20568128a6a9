"""The columns of a table of trials: names, numeric values, and displayed values. Pure.

A column's key is the name of a parameter, of a metric or of one of the fixed columns. If two have the same name, the
parameter keeps it, and the others get a prefix: `metric.lr`, `trial.state`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

import numpy as np

from katib.doors.ui.numbers import told_apart
from katib.figures.pareto import front_of
from katib.figures.trials import STATES, Floats, Rows, TrialTable
from katib.model.types import ParameterType
from katib.service.tuning.reading import format_run, short


class ColumnKind(StrEnum):
    """The type of a column's cells."""

    TEXT = "text"
    NUMBER = "number"
    CHOICE = "choice"
    TIME = "time"
    DURATION = "duration"


class ColumnGroup(StrEnum):
    """The subject of a column."""

    TRIAL = "trial"
    METRIC = "metric"
    PARAMETER = "parameter"


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column.

    Attributes:
        key: Its key in addresses; unique in a table.
        name: Name of the parameter or metric, or of the fixed column.
        kind: Type of its cells.
        group: Its subject.
        choices: The choices, of which its numbers are indices.
        whole: Whether its numbers are integers.
        strategy: The reading of a metric that is shown; empty if unknown.
    """

    key: str
    name: str
    kind: ColumnKind
    group: ColumnGroup
    choices: tuple[str, ...] = ()
    whole: bool = False
    strategy: str = ""

    @property
    def title(self) -> str:
        """Its title."""
        return _TITLES[self.name] if self.group is ColumnGroup.TRIAL else self.name

    @property
    def heading(self) -> str:
        """Its title in a table: for a metric with the reading that is shown, such as `accuracy (max)`."""
        return f"{self.title} ({self.strategy})" if self.strategy else self.title


@dataclass(frozen=True, slots=True)
class TableCell:
    """A displayed value, and its form with every digit."""

    shown: str
    exact: str


NAME, STATE, NUMBER, FEASIBLE = "trial", "state", "number", "feasible"
FRONT = "front"
MEAN, RUNS = "mean", "runs"
CREATED, STARTED, ENDED, DURATION = "created", "started", "ended", "duration"

_TITLES = {
    NAME: "Trial",
    NUMBER: "#",
    STATE: "State",
    MEAN: "Mean of runs",
    RUNS: "Runs",
    DURATION: "Duration",
    CREATED: "Created",
    STARTED: "Started",
    ENDED: "Ended",
    FEASIBLE: "Feasible",
    FRONT: "Pareto front",
}
_KINDS = {
    NAME: ColumnKind.TEXT,
    NUMBER: ColumnKind.NUMBER,
    STATE: ColumnKind.CHOICE,
    MEAN: ColumnKind.NUMBER,
    RUNS: ColumnKind.NUMBER,
    DURATION: ColumnKind.DURATION,
    CREATED: ColumnKind.TIME,
    STARTED: ColumnKind.TIME,
    ENDED: ColumnKind.TIME,
    FEASIBLE: ColumnKind.CHOICE,
    FRONT: ColumnKind.CHOICE,
}
_NO_YES = ("no", "yes")
_CHOICES = {STATE: STATES, FEASIBLE: _NO_YES, FRONT: _NO_YES}
_SHOWN_METRICS = 4
_SHOWN_PARAMETERS = 8
_LARGEST_WHOLE = 1e15
"""Above that a float cannot represent every integer."""


def columns_of(table: TrialTable) -> dict[str, TableColumn]:
    """Return all columns of a table by their keys: the fixed ones around metrics and parameters."""
    parameters = {}
    for axis in table.parameters:
        kind, whole = ColumnKind.CHOICE if axis.is_categorical else ColumnKind.NUMBER, axis.type == ParameterType.INT
        parameters[axis.name] = TableColumn(
            axis.name, axis.name, kind, ColumnGroup.PARAMETER, axis.choices, whole=whole
        )
    taken = set(parameters)
    metrics = [
        TableColumn(
            _free(name, ColumnGroup.METRIC, taken),
            name,
            ColumnKind.NUMBER,
            ColumnGroup.METRIC,
            strategy=table.strategies.get(name, ""),
        )
        for name in table.metrics
    ]
    taken |= {column.key for column in metrics}
    fixed = {
        name: TableColumn(
            _free(name, ColumnGroup.TRIAL, taken),
            name,
            kind,
            ColumnGroup.TRIAL,
            _CHOICES.get(name, ()),
            whole=name in (NUMBER, RUNS),
        )
        for name, kind in _KINDS.items()
        if (name != FRONT or len(table.objectives) > 1) and (name not in (MEAN, RUNS) or table.first_runs)
    }
    first = [fixed.pop(name) for name in (NAME, NUMBER, STATE, MEAN, RUNS) if name in fixed]
    return {column.key: column for column in (*first, *metrics, *parameters.values(), *fixed.values())}


def first_columns(columns: Mapping[str, TableColumn]) -> tuple[str, ...]:
    """Return the keys of the default columns: those for comparing trials at a glance."""
    room = {ColumnGroup.METRIC: _SHOWN_METRICS, ColumnGroup.PARAMETER: _SHOWN_PARAMETERS}
    chosen = []
    for column in columns.values():
        if column.group is ColumnGroup.TRIAL:
            if column.name in (NUMBER, STATE, MEAN, RUNS, DURATION):
                chosen.append(column.key)
        elif room[column.group]:
            room[column.group] -= 1
            chosen.append(column.key)
    return tuple(chosen)


def numbers_of(table: TrialTable, column: TableColumn) -> Floats:
    """Return a column as numbers: indices of `choices` for choices, seconds since 1970 for times.

    Raises:
        KeyError: The column of names has no numbers.
    """
    if column.group is ColumnGroup.PARAMETER:
        return table.values[column.name]
    if column.group is ColumnGroup.METRIC:
        return table.metrics[column.name]
    return _FIXED[column.name](table)


def order_of(table: TrialTable, column: TableColumn, rows: Rows) -> Floats | Rows:
    """Return the sort keys of some trials in a column, ascending; NaN for those without a value."""
    if column.kind is ColumnKind.TEXT:
        names = table.names[rows].astype("U")
        order = np.empty(len(names), dtype=np.int64)
        order[np.argsort(names)] = np.arange(len(names))
        return order
    numbers = numbers_of(table, column)[rows]
    if column.group is not ColumnGroup.PARAMETER or column.kind is not ColumnKind.CHOICE or not column.choices:
        return numbers
    ranks = np.empty(len(column.choices) + 1)
    ranks[np.argsort(np.array(column.choices))] = np.arange(len(column.choices))
    ranks[-1] = math.nan
    return ranks[np.where(np.isnan(numbers), -1, numbers).astype(np.int64)]


def cells_of(table: TrialTable, column: TableColumn, rows: Rows) -> list[TableCell]:
    """Return the cells of some trials in a column."""
    if column.kind is ColumnKind.TEXT:
        return [TableCell(name, name) for name in table.names[rows]]
    values: list[float] = numbers_of(table, column)[rows].tolist()
    if column.kind is ColumnKind.DURATION:
        nothing = TableCell("", "")
        return [nothing if math.isnan(v) else TableCell(format_run(v), f"{exact(v)} s") for v in values]
    if column.kind is ColumnKind.TIME:
        return [TableCell(text, text) for text in map(iso_time, values)]
    if column.kind is ColumnKind.CHOICE:
        texts = ["" if math.isnan(value) else column.choices[int(value)] for value in values]
    else:
        known = [exact(value) for value in values if math.isfinite(value)]
        apart = dict(zip(known, told_apart(known), strict=True))
        return [TableCell(apart.get(text, text), text) for text in map(exact, values)]
    return [TableCell(short(text), text) for text in texts]


def exact(value: float) -> str:
    """Return a number with every digit, as a program would write it; empty for NaN."""
    if math.isnan(value):
        return ""
    if value.is_integer() and abs(value) < _LARGEST_WHOLE:
        return str(int(value))
    return repr(value)


def iso_time(seconds: float) -> str:
    """Return a time in ISO 8601; empty for NaN."""
    return "" if math.isnan(seconds) else datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _free(name: str, group: ColumnGroup, taken: set[str]) -> str:
    key = name
    while key in taken:
        key = f"{group}.{key}"
    return key


_FIXED: dict[str, Callable[[TrialTable], Floats]] = {
    NUMBER: lambda table: np.arange(1, len(table) + 1, dtype=np.float64),
    STATE: lambda table: table.states.astype(np.float64),
    FEASIBLE: lambda table: table.feasible.astype(np.float64),
    FRONT: lambda table: np.isin(np.arange(len(table)), front_of(table)).astype(np.float64),
    CREATED: lambda table: table.created,
    STARTED: lambda table: table.started,
    ENDED: lambda table: table.ended,
    DURATION: lambda table: table.durations,
    RUNS: lambda table: table.run_counts_and_means[0],
    MEAN: lambda table: table.run_counts_and_means[1],
}
