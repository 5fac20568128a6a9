"""A fixed bound: stops a trial beyond it, and a diverged one. It compares with no other trial.

NaN policy: readings that are not finite are counted, and `max_nan` in a row stop a trial at any step; they are not
compared with the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from suggestion_services.early_stopping.algorithm import (
    StaticRule,
    StoppingAlgorithm,
    StoppingProblem,
    StoppingVerdict,
    running,
)
from suggestion_services.early_stopping.curves import CostCurve


class Threshold(StoppingAlgorithm):
    """Stops a trial whose newest reading is worse than a bound, or whose newest readings are not numbers."""

    def __init__(self, problem: StoppingProblem) -> None:
        super().__init__(problem)
        settings = problem.settings
        bound = settings.get("bound")
        self._bound = math.inf if bound is None else problem.value_of(float(bound))
        self._step = settings.whole("step", 1)
        self._max_nan = settings.whole("max_nan", 3)

    def judge(self, curves: Sequence[CostCurve]) -> list[StoppingVerdict]:
        """Check the newest readings of every running trial."""
        return [verdict for curve in running(curves) if (verdict := self._verdict(curve)) is not None]

    def static_rule(self) -> StaticRule | None:
        """Return the bound at reading number `step`."""
        return None if self._bound == math.inf else StaticRule(self._bound, self._step)

    def _verdict(self, curve: CostCurve) -> StoppingVerdict | None:
        newest = curve.costs[-self._max_nan :]
        if len(newest) == self._max_nan and all(map(math.isnan, newest)):
            because = f"has not been a number {self._max_nan} times in a row, up to {curve.place}"
            return self.verdict(curve, math.nan, because)
        cost = curve.costs[-1]
        if curve.resource >= self._step and cost > self._bound:
            mine, bound = self.problem.shown_apart(cost, self._bound)
            return self.verdict(curve, cost, f"{mine} at {curve.place} is worse than {bound}, the bound")
        return None
