"""The median rule at equal steps: a trial is compared with the finished ones at the step that it has reached.

Notation: s the resource of the running trial; b its best cost up to s; c_1, ..., c_n the costs at s of the trials that
have succeeded, each its newest usable reading at or before s. Trials that ended before s have no cost there.
Sources: [Golovin2017] Google Vizier: A Service for Black-Box Optimization, KDD 2017, section 3.2.2; the comparison with
the readings at s, and not with running averages up to it, is that of Optuna's `MedianPruner` and `PercentilePruner`.

A trial is stopped when b is above the `percentile` of c_1, ..., c_n. Since only unstopped trials count, the bar rises
with the search: at the end about half of the completed trials are better.

Differs from Optuna: a trial is judged by the present knowledge and not only at the moment of its reading, and a source
that reports at other steps is compared with the last readings before.

NaN policy: readings that are not finite are skipped; a running trial without any usable one is worse than every bar.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from katib.model.wording import counted
from suggestion_services.early_stopping.algorithm import StoppingAlgorithm, StoppingProblem, StoppingVerdict, running
from suggestion_services.early_stopping.curves import CostCurve, CurveState

_HALF = 50.0


class Median(StoppingAlgorithm):
    """Stops a trial whose best reading so far is worse than the median of finished trials at the same step."""

    def __init__(self, problem: StoppingProblem) -> None:
        super().__init__(problem)
        settings = problem.settings
        self._startup = settings.whole("n_startup_trials", 5)
        self._least = settings.whole("n_min_trials", 1)
        self._percentile = settings.number("percentile", _HALF)
        self._grace = settings.whole("grace", 0)

    def judge(self, curves: Sequence[CostCurve]) -> list[StoppingVerdict]:
        """Compare every running trial at the step that it has reached."""
        succeeded = [curve for curve in curves if curve.standing is CurveState.SUCCEEDED]
        if len(succeeded) < self._startup:
            return []
        due = (curve for curve in running(curves) if curve.resource >= self._grace)
        return [verdict for curve in due if (verdict := self._verdict(curve, succeeded)) is not None]

    def _verdict(self, curve: CostCurve, succeeded: Sequence[CostCurve]) -> StoppingVerdict | None:
        costs = [cost for other in succeeded if (cost := _cost_at(other, curve.resource)) is not None]
        if len(costs) < max(self._least, 1):
            return None
        bar = _percentile(costs, self._percentile)
        if curve.best <= bar:
            return None
        rule = "the median" if self._percentile == _HALF else f"the {self._percentile:g}th percentile"
        return self.worse_best(curve, bar, f"{rule} of {counted(len(costs), 'trial')} there")


def _percentile(costs: Sequence[float], percentile: float) -> float:
    """Return a percentile, interpolated linearly between two costs."""
    ordered = sorted(costs)
    below, share = divmod((len(ordered) - 1) * percentile / 100, 1)
    i = int(below)
    return ordered[i] + share * (ordered[min(i + 1, len(ordered) - 1)] - ordered[i])


def _cost_at(curve: CostCurve, resource: int) -> float | None:
    """Return the newest usable cost at or before a resource; None if the curve does not reach it or has none."""
    if curve.resource < resource:
        return None
    i = bisect_right(curve.resources, resource)
    return next((cost for cost in reversed(curve.costs[:i]) if not math.isnan(cost)), None)
