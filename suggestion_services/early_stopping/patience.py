"""Patience: stops a trial that has not improved for a while. It compares with no other trial.

Source: [Prechelt1998] Early Stopping - But When?, in Neural Networks: Tricks of the Trade, section 2.1.2, the criterion
of successive strips without improvement, here with single readings as strips.

Differs from the paper: improvement is the fall of the best cost over the last `patience` readings, so many small steps
count together.

NaN policy: such a reading is not an improvement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from suggestion_services.early_stopping.algorithm import StoppingAlgorithm, StoppingProblem, StoppingVerdict, running
from suggestion_services.early_stopping.curves import CostCurve


class PatienceStopping(StoppingAlgorithm):
    """Stops a trial whose best reading has not improved in the last readings."""

    def __init__(self, problem: StoppingProblem) -> None:
        super().__init__(problem)
        settings = problem.settings
        self._patience = settings.whole("patience", 10)
        self._min_delta = settings.number("min_delta", 0.0)
        self._grace = settings.whole("grace", 0)

    def judge(self, curves: Sequence[CostCurve]) -> list[StoppingVerdict]:
        """Check the last readings of every running trial."""
        return [self._verdict(curve) for curve in running(curves) if self._stands_still(curve)]

    def _stands_still(self, curve: CostCurve) -> bool:
        if len(curve) <= self._patience or curve.resource < self._grace:
            return False
        before = curve.bests[-1 - self._patience]
        if curve.best == math.inf:
            return True
        return before - curve.best <= self._min_delta

    def _verdict(self, curve: CostCurve) -> StoppingVerdict:
        while_ = f"in the last {self._patience} readings, up to {curve.place}"
        if curve.best == math.inf:
            return self.verdict(curve, math.nan, f"has had no usable value {while_}")
        by = f" by more than {self._min_delta:g}" if self._min_delta else ""
        return self.verdict(curve, curve.best, f"{self.problem.shown(curve.best)} has not improved{by} {while_}")
