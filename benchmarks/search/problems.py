"""What is searched: variables, a function to be minimized, its optimum; and the two splits.

`development` is for choosing and tuning. `final` has other instances and mostly other functions, and is only for
figures that are published: whoever looks at it while tuning makes it worthless.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Value = float | int | str
Values = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Variable:
    """One dimension.

    Attributes:
        name: Unique in its problem.
        kind: `double`, `int`, `discrete` (numbers in `values`) or `categorical` (texts in `values`).
        low: Lower bound, for numbers.
        high: Upper bound, included.
        log: Whether it is searched on a logarithmic axis.
        values: Texts of a list.
        when: It exists only when the variable of this name has one of these values.
    """

    name: str
    kind: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    values: tuple[str, ...] = ()
    when: tuple[str, tuple[str, ...]] | None = None

    def is_active(self, values: Values) -> bool:
        """Return whether it exists beside these values of the variables before it."""
        return self.when is None or values.get(self.when[0]) in self.when[1]


@dataclass(frozen=True, slots=True)
class Task:
    """A problem.

    Attributes:
        name: Unique in its split.
        group: What it is reported with.
        variables: In order; conditions look back only.
        evaluate: The function; it passes over variables that do not exist at a point.
        optimum: Its least value; for trainings a little below the least that is known.
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
    """What a search is given beside the problem.

    Attributes:
        seed: Of the search.
        evaluations: Its budget.
        parallel: How many evaluations are under way at once.
    """

    seed: int
    evaluations: int
    parallel: int


def doubles(names: str, low: float, high: float, *, log: bool = False) -> tuple[Variable, ...]:
    """Return continuous variables with the same bounds; names are separated by spaces."""
    return tuple(Variable(name, "double", low, high, log) for name in names.split())
