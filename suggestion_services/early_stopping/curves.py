"""Curves of trials, the input of early stopping algorithms.

Notation: cost: a reading of the objective as a number to minimise, negated if the objective is maximised; NaN for a
reading that is not a finite number. Resource: the step of a reading, or its number, from 1, if the source of the trial
has no steps. A curve is in order of resource.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import accumulate
from typing import NamedTuple


class CurveState(Enum):
    """The state of a trial."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    """It was stopped early, or ended without success: its readings still count."""


class CurvePoint(NamedTuple):
    """One reading.

    Attributes:
        resource: Step, or number of the reading.
        cost: To minimise; NaN if the reading is not a finite number.
    """

    resource: int
    cost: float


@dataclass(frozen=True, slots=True, eq=False)
class CostCurve:
    """The readings of one trial. Immutable; `extended` returns a longer copy.

    Attributes:
        trial_name: The trial.
        standing: State of the trial.
        by_number: Whether the resource is the number of the reading.
        resources: Of the readings, non-decreasing.
        costs: Of the readings.
        bests: The lowest cost up to each reading; infinity before the first usable one.
    """

    trial_name: str
    standing: CurveState = CurveState.RUNNING
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
        standing: CurveState = CurveState.RUNNING,
        maximize: bool = False,
    ) -> CostCurve:
        """Return a curve from values of the objective, with their steps if they have any."""
        costs = [-value if maximize else value for value in values]
        resources = range(1, len(costs) + 1) if steps is None else steps
        empty = cls(trial_name, standing, by_number=steps is None)
        return empty.extended(sorted(map(CurvePoint, resources, costs), key=lambda point: point.resource))

    def extended(self, points: Sequence[CurvePoint]) -> CostCurve:
        """Return this curve with later points, none with a lower resource than the last one here."""
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

    def ended(self, standing: CurveState) -> CostCurve:
        return self if standing is self.standing else replace(self, standing=standing)

    def __len__(self) -> int:
        return len(self.resources)

    @property
    def resource(self) -> int:
        """The resource spent so far; 0 before the first reading."""
        return self.resources[-1] if self.resources else 0

    @property
    def best(self) -> float:
        """The lowest cost so far; infinity before the first usable reading."""
        return self.bests[-1] if self.bests else math.inf

    def best_by(self, resource: int) -> float:
        """Return the lowest cost up to a reached resource.

        For a source that starts later or skips steps, its first reading counts.
        """
        return self.bests[max(bisect_right(self.resources, resource), 1) - 1]

    @property
    def place(self) -> str:
        """The end of the curve, in words: `step 4`, `reading 4`."""
        return f"{'reading' if self.by_number else 'step'} {self.resource}"
