"""Encoding of points for the Gaussian process.

Notation: a *row* holds d numbers, one per parameter with more than one value: for a number its position in [0, 1]
(uniform in probability), for a category its index. The *columns* of the kernel are the numbers as they are, and for
each category one column per value, 1 / sqrt(2) at the point's value, so that two points of different categories are at
distance 1 along that parameter.

Numbers come first, categories last, each in the order of the space. A grid or an ordered list is a number with
positions spread over [0, 1]; only these levels are ever evaluated. A parameter that a condition makes absent has the
value in its middle, as in complete points, so that two equal trials have the same row.
"""

from __future__ import annotations

import numpy as np

from katib.model.space import Grid, Parameter, Point, SearchSpace, Value, ValueList
from katib.model.space.conditions import ParentCondition
from suggestion_services.gp.optimize import BoolArray, FloatArray, IntArray

_MOST_LEVELS = 1000  # a finer grid is treated as continuous
_SAME = 1e-9


class Encoding:
    """The parameters of a space with more than one value.

    Attributes:
        count: d, of parameters.
        n_numbers: Number of numeric parameters.
        levels: For each number its positions in ascending order; None if it is continuous, or nearly.
        categories: For each category its number of values.
        groups: For each column of the kernel the number of its parameter, shape (c,).
    """

    def __init__(self, space: SearchSpace) -> None:
        self._fixed = {p.name: p.at(0) for p in space.parameters if p.size == 1}
        self._names = [p.name for p in space.parameters]
        free = [p for p in space.parameters if p.size != 1]
        numbers = [p for p in free if not _is_category(p)]
        texts = [p for p in free if _is_category(p)]
        self._free: list[Parameter] = numbers + texts
        self.count, self.n_numbers = len(self._free), len(numbers)
        self._edges = [_edges(p) for p in numbers]
        self.levels = [_levels(p) for p in numbers]
        self.categories = [p.size or 0 for p in texts]
        columns = list(range(len(numbers)))
        for i, size in enumerate(self.categories):
            columns += [len(numbers) + i] * size
        self.groups: IntArray = np.array(columns, dtype=np.intp)
        self._conditions = [(self.place(c.parameter), *self._test(c)) for c in space.conditions]
        self._parents = [condition.parent for condition in space.conditions]
        self._children = [condition.parameter for condition in space.conditions]
        self._middle = self.row({p.name: p.from_unit(0.5) for p in self._free})

    def place(self, name: str) -> int:
        """Return the index of a parameter in a row; -1 if it has only one value."""
        return next((i for i, p in enumerate(self._free) if p.name == name), -1)

    def _test(self, condition: ParentCondition) -> tuple[int, FloatArray]:
        """Return the index of the parent and its values, as in a row, for which the child is present."""
        place = self.place(condition.parent)
        if place < 0:  # its one value either allows the child or never does
            return place, np.array([0.0] if self._fixed[condition.parent] in condition.values else [])
        return place, np.array([self._number(place, value) for value in condition.values])

    def row(self, point: Point) -> FloatArray:
        """Return the row of a point."""
        row = np.empty(self.count)
        for i, p in enumerate(self._free):
            row[i] = self._number(i, point[p.name])
        return row

    def _number(self, i: int, value: Value) -> float:
        p = self._free[i]
        if i >= self.n_numbers:
            return float(p.index_of(value))
        low, high = self._edges[i]
        return (p.to_unit(value) - low) / (high - low)

    def absent(self, rows: FloatArray) -> BoolArray:
        """Return a mask of absent parameters for rows (q, d), shape (q, d)."""
        absent = np.zeros(rows.shape, dtype=bool)
        by_name: dict[str, BoolArray] = {}
        for name, parent, (place, parent_place, values) in zip(
            self._children, self._parents, self._conditions, strict=True
        ):
            at = rows[:, parent_place, None] if parent_place >= 0 else np.zeros((len(rows), 1))
            is_absent = ~np.any(np.abs(at - values) < _SAME, axis=1)
            if parent in by_name:
                is_absent |= by_name[parent]
            by_name[name] = is_absent
            if place >= 0:
                absent[:, place] = is_absent
        return absent

    def settle(self, rows: FloatArray) -> FloatArray:
        """Return rows (q, d) with the middle value for absent parameters."""
        return np.where(self.absent(rows), self._middle, rows) if self._conditions else rows

    def point(self, row: FloatArray) -> Point:
        """Return the feasible point nearest to a row."""
        values: dict[str, Value] = dict(self._fixed)
        for i, p in enumerate(self._free):
            values[p.name] = self._value(i, p, float(row[i]))
        return {name: values[name] for name in self._names}

    def _value(self, i: int, p: Parameter, x: float) -> Value:
        if i >= self.n_numbers:
            return p.at(round(x))
        levels = self.levels[i]
        if levels is not None:
            return p.at(int(np.argmin(np.abs(levels - x))))
        low, high = self._edges[i]
        return p.from_unit(min(max(low + x * (high - low), 0.0), 1.0))

    def from_units(self, units: FloatArray) -> FloatArray:
        """Return the rows (q, d) at points (q, d) of the unit cube; equally probable values get equal shares."""
        rows = units.copy()
        for i, levels in enumerate(self.levels):
            if levels is not None:
                rows[:, i] = levels[np.minimum((units[:, i] * len(levels)).astype(int), len(levels) - 1)]
        for i, size in enumerate(self.categories, start=self.n_numbers):
            rows[:, i] = np.minimum((units[:, i] * size).astype(int), size - 1)
        return self.settle(rows)

    def snap(self, rows: FloatArray) -> FloatArray:
        """Return rows (q, d) moved to the nearest levels."""
        snapped = rows.copy()
        for i, levels in enumerate(self.levels):
            if levels is not None:
                middle = (levels[1:] + levels[:-1]) / 2
                snapped[:, i] = levels[np.searchsorted(middle, rows[:, i])]
        return self.settle(snapped)

    def edges(self, i: int) -> tuple[float, float]:
        """Return the positions in [0, 1] of a number's first and last value."""
        return self._edges[i]

    def rows(self, columns: FloatArray) -> FloatArray:
        """Return the rows (q, d) of columns (q, c); see `columns`."""
        parts, at = [columns[:, : self.n_numbers]], self.n_numbers
        for size in self.categories:
            parts.append(np.argmax(columns[:, at : at + size], axis=1)[:, None].astype(np.float64))
            at += size
        return np.concatenate(parts, axis=1)

    def columns(self, rows: FloatArray) -> FloatArray:
        """Return the columns (q, c) of rows (q, d)."""
        parts = [rows[:, : self.n_numbers]]
        for i, size in enumerate(self.categories, start=self.n_numbers):
            parts.append((rows[:, i, None] == np.arange(size)) * np.sqrt(0.5))
        return np.concatenate(parts, axis=1)


def _is_category(parameter: Parameter) -> bool:
    return isinstance(parameter, ValueList) and not parameter.ordered


def _edges(parameter: Parameter) -> tuple[float, float]:
    """Return the positions of the first and the last value."""
    size = parameter.size
    if size is None:
        return 0.0, 1.0
    return parameter.to_unit(parameter.at(0)), parameter.to_unit(parameter.at(size - 1))


def _levels(parameter: Parameter) -> FloatArray | None:
    size = parameter.size
    if size is None or size > _MOST_LEVELS:
        return None
    if isinstance(parameter, Grid) and parameter.spread is not None:
        low, high = _edges(parameter)
        return np.array([(parameter.to_unit(parameter.at(k)) - low) / (high - low) for k in range(size)])
    return np.linspace(0.0, 1.0, size)
