"""Curves of trials, as early stopping algorithms see them.

Notation: cost: a reading of the objective as a number to minimise, so negated when the objective is maximised; NaN for
a reading that is not a finite number. Resource: the step of a reading, or its number, from 1, where the source of the
trial knows no steps. A curve is in order of resource.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import accumulate
from typing import NamedTuple


class Standing(Enum):
    """Where a trial stands."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    """It was stopped early, or ended without success: its curve counts as far as it goes."""


class Point(NamedTuple):
    """One reading.

    Attributes:
        resource: Step, or number of the reading.
        cost: To minimise; NaN when the reading is not a finite number.
    """

    resource: int
    cost: float


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The readings of one trial. Immutable; `extended` returns a longer one at the price of a copy.

    Attributes:
        trial_name: Whose.
        standing: Whether the trial still runs.
        by_number: Whether the resource is the number of the reading.
        resources: Of the readings, never falling.
        costs: Of the readings.
        bests: The lowest cost up to each reading; infinity while there is no usable one.
    """

    trial_name: str
    standing: Standing = Standing.RUNNING
    by_number: bool = False
    resources: Sequence[int] = field(default=(), repr=False)
    costs: Sequence[float] = field(default=(), repr=False)
    bests: Sequence[float] = field(default=(), repr=False)

    @classmethod
    def of(
        cls,
        trial_name: str,
        values: Iterable[float],
        *,
        steps: Iterable[int] | None = None,
        standing: Standing = Standing.RUNNING,
        maximize: bool = False,
    ) -> Curve:
        """Return a curve from values of the objective, with their steps if they have some."""
        costs = [-value if maximize else value for value in values]
        resources = range(1, len(costs) + 1) if steps is None else steps
        empty = cls(trial_name, standing, by_number=steps is None)
        return empty.extended(sorted(map(Point, resources, costs), key=lambda point: point.resource))

    def extended(self, points: Sequence[Point]) -> Curve:
        """Return this curve with later points: none has a lower resource than the last one here."""
        if not points:
            return self
        costs = [point.cost if math.isfinite(point.cost) else math.nan for point in points]
        usable = (math.inf if math.isnan(cost) else cost for cost in costs)
        _, *bests = accumulate(usable, min, initial=self.best)
        return replace(
            self,
            resources=[*self.resources, *(point.resource for point in points)],
            costs=[*self.costs, *costs],
            bests=[*self.bests, *bests],
        )

    def ended(self, standing: Standing) -> Curve:
        """Return this curve with another standing."""
        return self if standing is self.standing else replace(self, standing=standing)

    def __len__(self) -> int:
        return len(self.resources)

    @property
    def resource(self) -> int:
        """The resource spent so far; 0 before the first reading."""
        return self.resources[-1] if self.resources else 0

    @property
    def best(self) -> float:
        """The lowest cost so far; infinity while there is no usable reading."""
        return self.bests[-1] if self.bests else math.inf

    def best_by(self, resource: int) -> float:
        """Return the lowest cost up to a resource that was reached.

        A source that begins later or leaves steps out has its first reading counted there.
        """
        return self.bests[max(bisect_right(self.resources, resource), 1) - 1]

    @property
    def place(self) -> str:
        """Where the curve ends, in words: `step 4`, `reading 4`."""
        return f"{'reading' if self.by_number else 'step'} {self.resource}"
