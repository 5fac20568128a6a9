"""Encoding of points for CMA-ES: a vector of numbers in [0, 1], and an index for each categorical parameter.

| parameter | encoding |
|---|---|
| double, int, discrete list of numbers | position in [0, 1], uniform in probability |
| categorical, discrete list of texts | index, drawn from separate probabilities |
| parameter with one value | none |

A step or a list of numbers is searched by rounding. That was better than a margin for each value ([Hamano2022] in
`distribution`) on searches of about a hundred trials, which have too few generations for the margin to make up for the
points that it keeps at the ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from katib.model.space import Parameter, Point, SearchSpace, Value, ValueList

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """An encoded point.

    Attributes:
        numbers: Shape (d,), in [0, 1].
        categories: Index of the value of each categorical parameter.
    """

    numbers: Vector
    categories: tuple[int, ...]


@dataclass(frozen=True)
class Coordinates:
    """The parameters of a space, by their encoding.

    Attributes:
        numeric: Parameters with numbers, d of them.
        categorical: Parameters with texts.
    """

    space: SearchSpace
    numeric: Sequence[Parameter] = field(init=False)
    categorical: Sequence[Parameter] = field(init=False)

    def __post_init__(self) -> None:
        free = [p for p in self.space.parameters if p.size != 1]
        object.__setattr__(self, "numeric", [p for p in free if is_numeric(p)])
        object.__setattr__(self, "categorical", [p for p in free if not is_numeric(p)])

    def candidate(self, point: Point) -> Candidate:
        numbers = np.array([p.to_unit(point[p.name]) for p in self.numeric], dtype=float)
        return Candidate(numbers, tuple(p.index_of(point[p.name]) for p in self.categorical))

    def point(self, candidate: Candidate) -> Point:
        """Return the feasible point nearest to a candidate."""
        found: dict[str, Value] = {p.name: p.at(i) for p, i in zip(self.categorical, candidate.categories, strict=True)}
        found |= {p.name: p.from_unit(x) for p, x in zip(self.numeric, candidate.numbers.tolist(), strict=True)}
        return {p.name: found[p.name] if p.name in found else p.at(0) for p in self.space.parameters}


def is_numeric(parameter: Parameter) -> bool:
    return not isinstance(parameter, ValueList) or parameter.ordered
