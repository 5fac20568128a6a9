"""Summary of a long log, computed by the database, so that no readings are transferred.

Notation: a *plain* number is one that the database parses as Python does, up to the last bits; an *odd* value may be a
usable number, too, but has to be parsed in Python (huge exponents, hundreds of digits).

Theory of operation. The database finds the smallest and the largest plain number, and then the few texts within a
tolerance of them, with all odd ones. Which of these are numbers, and which is the smallest, is decided here, by the
rules for folding a short log. If no text matches the database's result, the log is folded reading by reading, so that a
value of an unexpected form costs time and is never wrong.

A long curve is thinned in the same way, by the rules of `katib.model.thinning`: only the kept points are transferred.
There, a number that is not plain counts as none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Case, ColumnElement, Connection, Select, and_, case, func, literal, literal_column, or_, select

from katib.engine.observations.dialects import metric_is
from katib.engine.observations.extremes import Extremes
from katib.engine.observations.statements import Statements
from katib.engine.observations.tables import observation_logs as table
from katib.model.metrics import is_usable
from katib.model.thinning import bucket_count
from katib.model.types import UNAVAILABLE, Metric

_NEAR = 1e-9
"""Relative tolerance: far above any database's rounding errors, and still only a few texts."""

_TINY = 1e-280
"""Absolute tolerance, for numbers whose last bits are lost near zero."""

_MOST_TEXTS = 1_000
"""Limit of the texts within the tolerance that are fetched one by one."""

_PLAIN = r"[+-]?([0-9]{1,30}([.][0-9]{0,60})?|[.][0-9]{1,60})([eE][+-]?[0-9]{1,2})?"
_NUMBER = r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"
"""The decimal form of `katib.model.metrics.parse_value`; named numbers are never usable."""

_LARGEST_PLAIN = 1e290
"""On SQLite, which has no patterns, a number is plain by its size."""

_SQLITE_NUMBER = "value NOT GLOB '*[^-+0-9.eE]*' AND value GLOB '*[0-9]*'"


class NotComputableError(Exception):
    """The database's result cannot be trusted for this log; it has to be read."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """Expressions over a value in a dialect.

    Attributes:
        number: The plain number, NULL if it is not plain.
        comparable: The plain number, undefined if it is not plain; cheaper.
        is_odd: Whether it has to be parsed in Python.
        text: The value, case-sensitive whatever the table's collation.
    """

    number: ColumnElement[Any]
    comparable: ColumnElement[Any]
    is_odd: ColumnElement[bool]
    text: ColumnElement[str]


def metric_summary(
    connection: Connection,
    trial_name: str,
    metric: str,
    curve: Sequence[ColumnElement[Any]],
    known: Extremes | None = None,
) -> Metric | None:
    """Return the summary of a metric; None if it has no reading.

    Args:
        curve: The columns that order readings.
        known: Its extremes if they are stored reliably.

    Raises:
        NotComputableError: The log contains values that have to be parsed in Python.
    """
    of_metric = [table.c.trial_name == trial_name, *metric_is(connection.dialect.name, metric)]
    newest = select(table.c.value).where(*of_metric).order_by(*(column.desc() for column in curve)).limit(1)
    latest = connection.execute(newest).scalar()
    if latest is None:
        return None
    if known is not None:
        return Metric(name=metric, min=known.low_value, max=known.high_value, latest=latest)
    columns = _columns(connection.dialect.name)
    # OFFSET keeps the planner from evaluating the number, which is expensive, in both places.
    numbers_of = select(columns.number.label("number")).where(*of_metric).offset(0).subquery()
    low, high = connection.execute(select(func.min(numbers_of.c.number), func.max(numbers_of.c.number))).one()
    texts = _texts_near(connection, of_metric, columns, low, high)
    numbers = {text: float(text) for text in texts if is_usable(text)}
    _check(numbers.values(), low, high)
    if not numbers:
        return Metric(name=metric, min=UNAVAILABLE, max=UNAVAILABLE, latest=latest)
    smallest, largest = (
        _earliest(
            connection, of_metric, curve, columns, [text for text, number in numbers.items() if number == extreme]
        )
        for extreme in (min(numbers.values()), max(numbers.values()))
    )
    return Metric(name=metric, min=smallest, max=largest, latest=latest)


def thinned_curve(
    statements: Statements, dialect: str, of_metric: list[ColumnElement[bool]], max_points: int
) -> Select[Any]:
    """Return the query of the kept readings of a longer curve, in order."""
    inner = statements.readings.add_columns(
        _columns(dialect).number.label("number"),
        func.row_number().over(order_by=statements.curve).label("place"),
        func.count().over().label("total"),
    )
    numbered = inner.where(*of_metric).subquery()
    c = numbered.c
    bucket = (c.place - 1) * literal(bucket_count(max_points)) // c.total
    smallest_first = (c.number.is_(None), c.number, c.place)
    largest_first = (c.number.is_(None), c.number.desc(), c.place)
    ranked = select(
        numbered,
        func.row_number().over(partition_by=bucket, order_by=smallest_first).label("from_low"),
        func.row_number().over(partition_by=bucket, order_by=largest_first).label("from_high"),
    ).subquery()
    r = ranked.c
    is_kept = or_(r.from_low == 1, r.from_high == 1, r.place == 1, r.place == r.total)
    return select(r.time, r.metric_name, r.value, r.step, r.id).where(is_kept).order_by(r.place)


def _texts_near(
    connection: Connection, of_metric: list[ColumnElement[bool]], columns: _Columns, low: Any, high: Any
) -> list[str]:
    """Return the distinct texts that may be the smallest or the largest number."""
    wanted = [columns.is_odd]
    if low is not None:
        near = columns.comparable
        wanted = [near <= low + _hair(low), near >= high - _hair(high), *wanted]
    query: Select[Any] = select(columns.text).where(*of_metric, or_(*wanted)).distinct().limit(_MOST_TEXTS + 1)
    texts = [_decoded(text) for (text,) in connection.execute(query)]
    if len(texts) > _MOST_TEXTS:
        raise NotComputableError
    return texts


def _check(numbers: Iterable[float], low: float | None, high: float | None) -> None:
    """Check that the database's extremes are numbers in Python, too."""
    found = list(numbers)
    for extreme in (low, high):
        if extreme is not None and all(abs(number - extreme) > _hair(extreme) for number in found):
            raise NotComputableError


def _earliest(
    connection: Connection,
    of_metric: list[ColumnElement[bool]],
    curve: Sequence[ColumnElement[Any]],
    columns: _Columns,
    texts: list[str],
) -> str:
    """Return the text of the first of several equal readings."""
    if len(texts) == 1:
        return texts[0]
    first = select(columns.text).where(*of_metric, columns.text.in_(texts)).order_by(*curve).limit(1)
    found = connection.execute(first).scalar()
    if found is None:  # deleted concurrently
        raise NotComputableError
    return _decoded(found)


def _hair(number: float) -> float:
    return abs(number) * _NEAR + _TINY


def _decoded(text: str | bytes) -> str:
    return text.decode() if isinstance(text, bytes) else text


def _columns(dialect: str) -> _Columns:
    if dialect == "sqlite":
        real: ColumnElement[Any] = literal_column("CAST(value AS REAL)")
        looks_so: ColumnElement[bool] = literal_column(f"({_SQLITE_NUMBER})")
        is_large = func.abs(real) >= _LARGEST_PLAIN
        # Comparing the raw number includes texts that only begin with one; they are few, and filtered out here.
        return _Columns(_if(and_(looks_so, ~is_large), real), real, and_(is_large, looks_so), table.c.value)
    text: ColumnElement[Any] = table.c.value
    number: ColumnElement[Any] = literal_column("CAST(value AS DOUBLE PRECISION)")
    end = "$"
    if dialect == "mysql":
        # Compared by bytes, as a table created by Katib is case-insensitive; `\z` is the very end, `$` is not.
        text = literal_column("CONVERT(value USING utf8mb4) COLLATE utf8mb4_bin")
        number, end = literal_column("(value + 0e0)"), r"\z"
    is_plain = text.regexp_match(f"^{_PLAIN}{end}")
    is_odd = and_(text.regexp_match(f"^{_NUMBER}{end}"), ~is_plain)
    return _Columns(_if(is_plain, number), _if(is_plain, number), is_odd, text)


def _if(condition: ColumnElement[bool], value: ColumnElement[Any]) -> Case[Any]:
    return case((condition, value), else_=None)
