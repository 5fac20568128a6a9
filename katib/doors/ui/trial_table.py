r"""Filtering and sorting of a table of trials: a query in, rows out. Pure.

A query comes from an address. Filters are written

- `lr:0.001..0.1`: from 0.001 to 0.1; either end may be missing, several parts are separated by commas, and the part
  `none` stands for trials without a value;
- `optimizer=adam|sgd`: one of these; a backslash precedes a `|` or a backslash that is part of a value, and `\-` is for
  trials without a value.

The text is in the language of `search`. All filters have to match. Trials without a value in a column come last in
either order; in the order of an objective, trials that cannot be the best come before them, such as infeasible ones.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import numpy as np
import numpy.typing as npt

from katib.doors.ui.search import NONE, ORDERS, Term, terms_of
from katib.doors.ui.trial_columns import (
    NAME,
    ColumnGroup,
    ColumnKind,
    TableCell,
    TableColumn,
    cells_of,
    columns_of,
    exact,
    first_columns,
    iso_time,
    numbers_of,
    order_of,
)
from katib.errors import invalid
from katib.figures.data import measure_of
from katib.figures.pareto import front_of
from katib.figures.style import places
from katib.figures.trials import STATES, Floats, Rows, TrialTable, number_of
from katib.model.marks import Marks

SIZES = (10, 25, 50, 100, 200)
"""Offered numbers of rows per page."""
MOST_ROWS = 1_000
_MOST_TERMS = 300

_VALUE = re.compile(r"\\(.)|\|", re.DOTALL)
_NO_RANGE, _NO_VALUE, _ABSENT = "none", "\\-", "\0"
"""A filter's word for trials without a value, and its substitute during parsing, which no value contains."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on a column: a number within one of the ranges, or one of the values.

    Attributes:
        column: The column.
        ranges: Ranges, with both ends included.
        values: Exact texts of values.
        absent: Whether trials without a value pass, too.
        by_values: Whether it is written with values.
    """

    column: TableColumn
    ranges: tuple[tuple[float, float], ...] = ()
    values: tuple[str, ...] = ()
    absent: bool = False
    by_values: bool = False

    @property
    def text(self) -> str:
        """Its form in an address."""
        if self.by_values:
            return f"{self.column.key}={'|'.join([*map(_escaped, self.values), *[_NO_VALUE] * self.absent])}"
        parts = [f"{self._end(low)}..{self._end(high)}" for low, high in self.ranges]
        return f"{self.column.key}:{','.join([*parts, *[_NO_RANGE] * self.absent])}"

    @property
    def words(self) -> str:
        """Its form for users."""
        values = [f"is {' or '.join(self.values)}"] if self.values else []
        parts = [*values, *(self._range_words(low, high) for low, high in self.ranges), *["is absent"] * self.absent]
        return f"{self.column.title} {' or '.join(parts)}"

    def mask(self, table: TrialTable) -> Mask:
        """Return the mask of matching trials."""
        if self.column.kind is ColumnKind.TEXT:
            return np.isin(table.names, np.array(self.values, dtype=object))
        numbers = numbers_of(table, self.column)
        if self.column.kind is ColumnKind.CHOICE:
            passes = np.isin(numbers, [i for i, choice in enumerate(self.column.choices) if choice in self.values])
        else:
            passes = np.isin(numbers, [float(value) for value in self.values])
        for low, high in self.ranges:
            passes |= (numbers >= low) & (numbers <= high)
        return passes | np.isnan(numbers) if self.absent else passes

    def _end(self, value: float) -> str:
        if math.isinf(value):
            return ""
        return iso_time(value) if self.column.kind is ColumnKind.TIME else exact(value)

    def _range_words(self, low: float, high: float) -> str:
        if math.isinf(low):
            return f"up to {self._end(high)}"
        return f"from {self._end(low)}" + ("" if math.isinf(high) else f" to {self._end(high)}")


@dataclass(frozen=True, slots=True)
class TableQuery:
    """A user's query of the table.

    Attributes:
        states: Only trials in one of these; empty: in any.
        where: Filters in their written form.
        text: A search in the language of `search`; its words are parts of the name, of a chosen value, of a tag, of the
            notes or of the cause of a failure.
        sort: Key of the column to sort by; empty: the order of creation.
        descending: Whether the largest comes first.
        page: Page number, from 1.
        size: Rows per page.
        columns: Keys of the columns to show; empty: the default ones.
    """

    states: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    text: str = ""
    sort: str = ""
    descending: bool = False
    page: int = 1
    size: int = 25
    columns: tuple[str, ...] = ()

    def address(self, **changes: Any) -> str:
        """Return the query part of an address, with some changes."""
        query = replace(self, **changes)
        plain = {"text": query.text, "sort": query.sort, "order": "down" if query.descending else ""}
        if query.page != 1:
            plain["page"] = str(query.page)
        lists = (("state", query.states), ("where", query.where), ("column", query.columns))
        pairs = [(key, value) for key, value in plain.items() if value]
        pairs += [(key, value) for key, values in lists for value in values]
        return urlencode([*pairs, ("size", query.size)])


@dataclass(frozen=True, slots=True)
class TableRow:
    """One trial of a page.

    Attributes:
        name: Name of the trial.
        state: State of the trial.
        is_best: Whether it is the best one, or with several objectives on the Pareto front.
        is_feasible: Whether it satisfies the constraints.
        marks: Its marks.
        cells: One for each shown column.
        since: Time of its start while it runs, in ISO 8601; else empty.
        failure: Cause of its failure; empty if it did not fail.
    """

    name: str
    state: str
    is_best: bool
    is_feasible: bool
    marks: Marks
    cells: tuple[TableCell, ...]
    since: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class TablePage:
    """A page of the table.

    Attributes:
        query: The query, with the number of an existing page.
        columns: All existing columns, by key.
        shown: The columns of the cells.
        filters: The filters of the query.
        rows: Rows of this page.
        matching: Number of matching trials.
        total: Number of all trials.
        pages: Number of pages, one at least.
        has_front: Whether there are several objectives, so that the best trials are those of the Pareto front.
        selected: The matching trials for scripts, a bit each in Base64; empty if all match.
        objective: Name of the objective, or of the first of several.
    """

    query: TableQuery
    columns: Mapping[str, TableColumn]
    shown: tuple[TableColumn, ...]
    filters: tuple[Filter, ...]
    rows: tuple[TableRow, ...]
    matching: int
    total: int
    pages: int = field(default=1)
    has_front: bool = False
    selected: str = ""
    objective: str = ""

    @property
    def first(self) -> int:
        """Number of the first row, from 1; 0 without any."""
        return (self.query.page - 1) * self.query.size + 1 if self.rows else 0

    @property
    def last(self) -> int:
        """Number of the last row."""
        return self.first + len(self.rows) - 1 if self.rows else 0

    @property
    def is_filtered(self) -> bool:
        """Whether the query excludes any trials."""
        return bool(self.query.states or self.query.where or self.query.text)

    def sort_address(self, column: TableColumn) -> str:
        """Return the query sorted by a column, reversed if it is sorted by it now."""
        turned = self.query.sort == column.key and not self.query.descending
        return self.query.address(sort=column.key, descending=turned, page=1)

    def without(self, dropped: Filter) -> str:
        """Return the query without a filter."""
        kept = tuple(text for text, made in zip(self.query.where, self.filters, strict=True) if made is not dropped)
        return self.query.address(where=kept, page=1)


def page_of(table: TrialTable, query: TableQuery) -> TablePage:
    """Return a page of the table; the last one if the requested one does not exist.

    Raises:
        InvalidError: The query names an unknown column, or a filter is malformed.
    """
    columns = columns_of(table)
    shown = tuple(_column(columns, key, "column") for key in query.columns or first_columns(columns))
    shown = tuple(column for column in shown if column.name != NAME or column.group is not ColumnGroup.TRIAL)
    filters = tuple(parse_filter(columns, text) for text in query.where)
    rows = ordered_rows(table, matching_rows(table, query, filters), query)
    pages = max(1, -(-len(rows) // query.size))
    page = min(max(1, query.page), pages)
    here = rows[(page - 1) * query.size : page * query.size]
    cells = zip(*(cells_of(table, column, here) for column in shown), strict=True) if shown else [()] * len(here)
    has_front = len(table.objectives) > 1
    best = set(front_of(table).tolist()) if has_front else {measure_of(table).best}
    unmarked = Marks()
    return TablePage(
        query=replace(query, page=page),
        columns=columns,
        shown=shown,
        filters=filters,
        rows=tuple(
            TableRow(
                str(table.names[row]),
                table.state_of(row),
                int(row) in best,
                bool(table.feasible[row]),
                table.marks.get(str(table.names[row]), unmarked),
                of_row,
                iso_time(table.started[row]) if table.state_of(row) == "Running" else "",
                table.failures.get(str(table.names[row]), ""),
            )
            for row, of_row in zip(here, cells, strict=True)
        ),
        matching=len(rows),
        total=len(table),
        pages=pages,
        has_front=has_front,
        selected=_bits(rows, len(table)) if len(rows) < len(table) else "",
        objective=table.objective.name,
    )


def _bits(rows: Rows, count: int) -> str:
    """Return which of so many trials are among some, a bit each, the first one lowest, as Base64."""
    mask = np.zeros(count, dtype=np.bool_)
    mask[rows] = True
    return b64encode(np.packbits(mask, bitorder="little").tobytes()).decode()


def chosen_rows(table: TrialTable, query: TableQuery) -> tuple[Rows, tuple[TableColumn, ...]]:
    """Return all matching trials, in order, and the columns of a download: the chosen ones, or all.

    Raises:
        InvalidError: As `page_of`.
    """
    columns = columns_of(table)
    filters = tuple(parse_filter(columns, text) for text in query.where)
    rows = ordered_rows(table, matching_rows(table, query, filters), query)
    names = [key for key, column in columns.items() if column.group is ColumnGroup.TRIAL and column.name == NAME]
    keys = dict.fromkeys([*names, *query.columns]) if query.columns else columns
    return rows, tuple(_column(columns, key, "column") for key in keys)


def matching_rows(table: TrialTable, query: TableQuery, filters: Sequence[Filter]) -> Rows:
    """Return the trials that match all filters, in the order of creation."""
    passes = np.ones(len(table), dtype=np.bool_)
    if query.states:
        for state in query.states:
            if state not in STATES:
                raise invalid("state", f"{state!r} is not a state of trials", f"use {', '.join(STATES)}", "table-state")
        passes &= table.in_states(*query.states)
    for condition in filters:
        passes &= condition.mask(table)
    for term in terms_of(query.text):
        found = _comparison(table, term)
        passes &= _holds_text(table, term.text) if found is None else found
    return places(passes)


def _comparison(table: TrialTable, term: Term) -> Mask | None:
    """Return the mask of a comparison; None if the term names no column, or compares it with another kind of value."""
    wanted = term.name.casefold()
    column = next((c for c in columns_of(table).values() if wanted in (c.key.casefold(), c.title.casefold())), None)
    if column is None:
        return None
    if column.kind is ColumnKind.TEXT:
        names = np.array([any(part in name for part in term.choices) for name in table.names], dtype=np.bool_)
        return {"=": names, "!=": ~names}.get(term.sign)
    numbers = numbers_of(table, column)
    absent = np.isnan(numbers)
    if term.value == NONE:
        found = absent
    elif column.kind is ColumnKind.CHOICE and term.sign in ORDERS:  # choices that are numbers
        values = np.array([*map(number_of, column.choices), math.nan])
        return _ordered(column, values[np.where(absent, -1, numbers).astype(np.int64)], term)
    elif column.kind is ColumnKind.CHOICE:
        chosen = [place for place, choice in enumerate(column.choices) if choice.casefold() in term.choices]
        found = np.isin(numbers, chosen)
    elif term.span is not None:
        found = (numbers >= term.span[0]) & (numbers <= term.span[1])
    else:
        return _ordered(column, numbers, term)
    return {"=": found, "!=": ~found & (~absent | (term.value == NONE))}.get(term.sign)


def _ordered(column: TableColumn, numbers: Floats, term: Term) -> Mask | None:
    """Return the mask of a comparison with numbers; None if they are not numbers."""
    try:
        values = [_seconds(one) if column.kind is ColumnKind.TIME else float(one) for one in term.value.split("|")]
    except ValueError:
        return None
    if order := ORDERS.get(term.sign):
        return np.asarray(order(numbers, values[0]), dtype=np.bool_)
    equal = np.isin(numbers, values)
    return equal if term.sign == "=" else ~np.isnan(numbers) & ~equal


def ordered_rows(table: TrialTable, rows: Rows, query: TableQuery) -> Rows:
    """Return trials in the requested order; equal ones in the order of creation, those without a value last.

    In the order of an objective, trials that cannot be the best come after all that can.

    Raises:
        InvalidError: The column does not exist.
    """
    if not query.sort:
        return rows[::-1] if query.descending else rows
    column = _column(columns_of(table), query.sort, "sort")
    order = order_of(table, column, rows)
    order = -order if query.descending else order
    if column.group is not ColumnGroup.METRIC or column.name not in (objective.name for objective in table.objectives):
        return rows[np.argsort(order, kind="stable")]
    is_out = ~measure_of(table, column.name).eligible[rows]
    return rows[np.lexsort((order, is_out, np.isnan(order)))]


def search_terms(columns: Mapping[str, TableColumn]) -> list[str]:
    """Return the beginnings of comparisons, and comparisons with choices, as a search field offers them."""
    terms: list[str] = []
    for column in columns.values():
        if column.kind is ColumnKind.CHOICE:
            quoted = (f'"{choice}"' if " " in choice else choice for choice in column.choices)
            terms += [f"{column.key}={choice}" for choice in quoted]
        elif column.kind is not ColumnKind.TEXT and not set(column.key) & set(' "<>=!:'):
            terms.append(f"{column.key}<")
    return terms[:_MOST_TERMS]


def parse_filter(columns: Mapping[str, TableColumn], text: str) -> Filter:
    """Parse a filter of the form `lr:0.001..0.1` or `optimizer=adam|sgd`.

    Raises:
        InvalidError: The column does not exist, or its condition is malformed.
    """
    key = max((key for key in columns if text.startswith((f"{key}:", f"{key}="))), key=len, default=None)
    if key is None:
        remedy = f"write NAME:LOW..HIGH or NAME=VALUE|VALUE of {', '.join(columns)}"
        raise invalid("where", f"{text!r} names no column", remedy, "filter-column")
    column, mark, rest = columns[key], text[len(key)], text[len(key) + 1 :]
    if mark == "=":
        values, absent = _split_values(rest)
        if column.kind not in (ColumnKind.CHOICE, ColumnKind.TEXT):
            for value in values:
                _number(column, value, text)
        return Filter(column, values=values, absent=absent, by_values=True)
    if column.kind in (ColumnKind.CHOICE, ColumnKind.TEXT):
        remedy = f"write {key}=VALUE|VALUE"
        raise invalid("where", f"{text!r}: {key} has no numbers", remedy, "filter-range")
    parts = rest.split(",")
    ranges = tuple(_range(column, part, text) for part in parts if part != _NO_RANGE)
    return Filter(column, ranges=ranges, absent=_NO_RANGE in parts)


def _range(column: TableColumn, part: str, text: str) -> tuple[float, float]:
    low, dots, high = part.partition("..")
    if not dots:
        remedy = f"write {column.key}:LOW..HIGH, where either may be missing"
        raise invalid("where", f"{text!r}: {part!r} is not a range", remedy, "filter-range")
    return (
        _number(column, low, text) if low else -math.inf,
        _number(column, high, text) if high else math.inf,
    )


def _number(column: TableColumn, value: str, text: str) -> float:
    try:
        number = _seconds(value) if column.kind is ColumnKind.TIME else float(value)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        what = "a time" if column.kind is ColumnKind.TIME else "a number"
        example = "2030-01-31T12:00:00Z" if column.kind is ColumnKind.TIME else "0.001"
        raise invalid("where", f"{text!r}: {value!r} is not {what}", f"write it like {example}", "filter-value")
    return number


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _column(columns: Mapping[str, TableColumn], key: str, field_name: str) -> TableColumn:
    if key not in columns:
        raise invalid(field_name, f"there is no column {key!r}", f"use {', '.join(columns)}", "table-column")
    return columns[key]


def _holds_text(table: TrialTable, text: str) -> Mask:
    passes = np.fromiter((text in name for name in table.names), dtype=np.bool_, count=len(table))
    noted = [
        name
        for name, marks in table.marks.items()
        if any(text in word.casefold() for word in (*marks.tags, marks.notes))
    ]
    noted += [name for name, cause in table.failures.items() if text in cause.casefold()]
    if noted:
        passes |= np.isin(table.names, np.array(noted, dtype=object))
    for axis in table.parameters:
        if axis.is_categorical:
            chosen = [place for place, choice in enumerate(axis.choices) if text in choice.casefold()]
            if chosen:
                passes |= np.isin(table.values[axis.name], chosen)
    return passes


def _split_values(text: str) -> tuple[tuple[str, ...], bool]:
    """Return values, and whether trials without one are named, too."""
    parts, start, current = [], 0, ""
    for found in _VALUE.finditer(text):
        current += text[start : found.start()] + (_ABSENT if found[1] == "-" else found[1] or "")
        start = found.end()
        if found[1] is None:
            parts.append(current)
            current = ""
    parts.append(current + text[start:])
    return tuple(part for part in parts if part != _ABSENT), _ABSENT in parts


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("|", "\\|")
