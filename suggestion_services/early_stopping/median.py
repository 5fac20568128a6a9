"""The median rule at equal steps: a trial is compared with what the finished ones had at the step that it has reached.

Notation: s the resource of the running trial; b its best cost up to s; c_1, ..., c_n the costs at s of the trials that
have succeeded, each its newest usable reading at or before s. Trials that ended before s have none.
Sources: [Golovin2017] Google Vizier: A Service for Black-Box Optimization, KDD 2017, section 3.2.2; the comparison with
the readings at s, and not with running averages up to it, is that of Optuna's `MedianPruner` and `PercentilePruner`.

A trial is stopped when b is above the `percentile` of c_1, ..., c_n. Since only trials that nothing stopped are
compared with, the bar rises with the search: at the end about half of the trials that came to an end are better.

Differs from Optuna: a trial is judged by what is known now and not only in the moment of its reading, and a source that
reports at other steps than the rest is compared with their last readings before.

NaN policy: readings that are no finite numbers are passed over; a running trial without any usable one is worse than
every bar.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from katib.model.wording import counted
from suggestion_services.early_stopping.algorithm import StoppingAlgorithm, StoppingProblem, Verdict, running
from suggestion_services.early_stopping.curves import Curve, Standing

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

    def judge(self, curves: Sequence[Curve]) -> list[Verdict]:
        """Compare every running trial at the step that it has reached."""
        succeeded = [curve for curve in curves if curve.standing is Standing.SUCCEEDED]
        if len(succeeded) < self._startup:
            return []
        due = (curve for curve in running(curves) if curve.resource >= self._grace)
        return [verdict for curve in due if (verdict := self._verdict(curve, succeeded)) is not None]

    def _verdict(self, curve: Curve, succeeded: Sequence[Curve]) -> Verdict | None:
        costs = [cost for other in succeeded if (cost := _cost_at(other, curve.resource)) is not None]
        if len(costs) < max(self._least, 1):
            return None
        bar = _percentile(costs, self._percentile)
        if curve.best <= bar:
            return None
        rule = "the median" if self._percentile == _HALF else f"the {self._percentile:g}th percentile"
        return self.worse_best(curve, bar, f"{rule} of {counted(len(costs), 'trial')} there")


def _percentile(costs: Sequence[float], percentile: float) -> float:
    """Return a percentile, between two costs on the line through them."""
    ordered = sorted(costs)
    below, share = divmod((len(ordered) - 1) * percentile / 100, 1)
    i = int(below)
    return ordered[i] + share * (ordered[min(i + 1, len(ordered) - 1)] - ordered[i])


def _cost_at(curve: Curve, resource: int) -> float | None:
    """Return the newest usable cost at or before a resource; None where the curve does not reach it or has none."""
    if curve.resource < resource:
        return None
    i = bisect_right(curve.resources, resource)
    return next((cost for cost in reversed(curve.costs[:i]) if not math.isnan(cost)), None)
