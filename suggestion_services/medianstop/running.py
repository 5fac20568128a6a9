"""The median stopping rule over running trials, by what is known now.

The same comparison as `MedianRule`, with the trials that have succeeded by now: a trial that was past the start step
when there were too few of them is judged as soon as there are enough, and again whenever another one succeeds.

NaN policy: as in `MedianRule`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from suggestion_services.early_stopping.algorithm import StoppingAlgorithm, StoppingProblem, Verdict, running
from suggestion_services.early_stopping.curves import Curve, Standing
from suggestion_services.medianstop.rule import MedianRule


class MedianStopping(StoppingAlgorithm):
    """Stops a trial whose best reading so far is worse than the median of what earlier ones averaged at the start."""

    def __init__(self, problem: StoppingProblem) -> None:
        super().__init__(problem)
        defaults = MedianRule()
        self._rule = MedianRule(
            problem.settings.whole("min_trials_required", defaults.min_trials_required),
            problem.settings.whole("start_step", defaults.start_step),
        )

    def judge(self, curves: Sequence[Curve]) -> list[Verdict]:
        """Compare every running trial that has come to the start step."""
        averages = [a for a in map(self._average, curves) if a is not None]
        bar = self._rule.threshold(averages)
        if bar is None:
            return []
        due = (curve for curve in running(curves) if len(curve) >= self._rule.start_step and curve.best > bar)
        return [self.worse_best(curve, bar, f"the median of {len(averages)} trials") for curve in due]

    def _average(self, curve: Curve) -> float | None:
        """Return the running average of a succeeded trial at the start step."""
        if curve.standing is not Standing.SUCCEEDED:
            return None
        usable = [cost for cost in curve.costs[: self._rule.start_step] if not math.isnan(cost)]
        return statistics.fmean(usable) if usable else None
