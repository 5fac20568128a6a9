"""How parameters look to scikit-optimize, and how values travel there and back.

Numbers with equal weights on a grid, and lists of numbers, are integers (the index); lists of texts are categories;
everything else is the share of probability below the value, a real in [0, 1], which respects every distribution. A
parameter with one value is left out: there is nothing to learn about it.
"""

from __future__ import annotations

from typing import Any

from skopt.space import Categorical, Integer, Real

from katib.space import Choice, Grid, Parameter, Point, SearchSpace, Value

_INT_LIMIT = 2**53  # beyond it a float cannot distinguish neighbors


class Dimensions:
    """The parameters of a space that have more than one value, as scikit-optimize sees them."""

    def __init__(self, space: SearchSpace) -> None:
        self._fixed = {p.name: p.at(0) for p in space.parameters if p.size == 1}
        self._free = [p for p in space.parameters if p.size != 1]
        self.library = [_dimension(p) for p in self._free]

    @property
    def only_categories(self) -> bool:
        """Whether there is no number to move: then the library's Gaussian process has no gradients."""
        return bool(self._free) and all(isinstance(p, Choice) and not p.ordered for p in self._free)

    def encode(self, point: Point) -> list[Any]:
        """Return the row of a point."""
        return [_encode(p, point[p.name]) for p in self._free]

    def decode(self, row: list[Any]) -> Point:
        """Return the point of a row."""
        return {**self._fixed, **{p.name: _decode(p, x) for p, x in zip(self._free, row, strict=True)}}


def _by_index(parameter: Parameter) -> bool:
    match parameter:
        case Grid(spread=None, count=count):
            return count <= _INT_LIMIT
        case Choice(ordered=ordered):
            return ordered
    return False


def _dimension(parameter: Parameter) -> Any:
    if _by_index(parameter):
        return Integer(0, (parameter.size or 1) - 1, transform="normalize", name=parameter.name)
    if isinstance(parameter, Choice):
        return Categorical(parameter.values, name=parameter.name)
    return Real(0.0, 1.0, transform="normalize", name=parameter.name)


def _encode(parameter: Parameter, value: Value) -> Value:
    if _by_index(parameter):
        return parameter.index_of(value)
    return value if isinstance(parameter, Choice) else parameter.to_unit(value)


def _decode(parameter: Parameter, x: Any) -> Value:
    if _by_index(parameter):
        return parameter.at(int(x))
    return parameter.parse(str(x)) if isinstance(parameter, Choice) else parameter.from_unit(float(x))
