"""Problems: variables, a function to minimize, and its optimum; and the two splits.

`development` is for choosing and tuning. `final` has other instances and mostly other functions, and is only for
published figures: looking at it while tuning makes it worthless.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Value = float | int | str
Values = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Variable:
    """A dimension of a problem.

    Attributes:
        name: Unique in its problem.
        kind: `double`, `int`, `discrete` (numbers in `values`) or `categorical` (texts in `values`).
        low: Lower bound, for numbers.
        high: Upper bound, included.
        log: Whether it is searched on a logarithmic axis.
        values: Texts of a list.
        when: The variable exists only if the one of this name has one of these values.
    """

    name: str
    kind: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    values: tuple[str, ...] = ()
    when: tuple[str, tuple[str, ...]] | None = None

    def is_active(self, values: Values) -> bool:
        """Whether it exists for these values of the variables before it."""
        return self.when is None or values.get(self.when[0]) in self.when[1]


@dataclass(frozen=True, slots=True)
class Task:
    """A problem.

    Attributes:
        name: Unique in its split.
        group: Group in reports.
        variables: In order; conditions look back only.
        evaluate: The function; it ignores absent variables.
        optimum: Its least value; for trainings a little below the least known one.
        resolution: Gaps below this share of random search's count as equal.
    """

    name: str
    group: str
    variables: tuple[Variable, ...]
    evaluate: Callable[[Values], float]
    optimum: float
    resolution: float = 1e-2


@dataclass(frozen=True, slots=True)
class Setting:
    """Input of a search besides the problem."""

    seed: int
    evaluations: int
    parallel: int


def doubles(names: str, low: float, high: float, *, log: bool = False) -> tuple[Variable, ...]:
    """Return continuous variables with the same bounds; names are separated by spaces."""
    return tuple(Variable(name, "double", low, high, log) for name in names.split())
