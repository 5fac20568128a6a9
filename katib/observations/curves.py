"""A long curve thinned by the database: only the points that are kept cross the wire.

The rules are those of `katib.api.thinning`. A number that the database does not read as we do (beyond 1e290, or of more
than 60 digits) counts as none here.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, func, literal, or_, select

from katib.api.thinning import bucket_count
from katib.observations.statements import Statements
from katib.observations.summaries import number_column


def thinned_curve(
    statements: Statements, dialect: str, of_metric: list[ColumnElement[bool]], max_points: int
) -> Select[Any]:
    """Return what selects the kept readings of a curve that is longer than that, in order."""
    inner = statements.readings.add_columns(
        number_column(dialect).label("number"),
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
