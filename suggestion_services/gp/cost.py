"""The cost of trials: a model of their durations, and their weight against the expected improvement.

Notation: t (n,) seconds of trials; c(x) the mean of a Gaussian process of log(t + 1/2), half a second because durations
are whole seconds; r in [0, 1] the weight of costs. The acquisition value of a point is log EI(x) - r c(x).

Source: [Snoek2012] Practical Bayesian Optimization of Machine Learning Algorithms, NeurIPS 25, section 3.2: expected
improvement per second, r = 1, which stays where trials are cheap. [Lee2020] Cost-aware Bayesian Optimization,
arXiv:2003.10870, section 4.2: so r falls from 1 to 0 as the budget is spent. Differs from it: the budget is a number of
trials, all that a search knows of it; without one, r is a half after 20 trials and continues to fall.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from suggestion_services.gp.likelihood import ThetaLayout
from suggestion_services.gp.model import GaussianModel, fit
from suggestion_services.gp.optimize import FloatArray

_LEAST_KNOWN = 3
_LEAST_DEVIATION = 0.05  # of log seconds: durations within five percent of each other are equal
_ROUNDING = 0.5
_HALF = 20


@dataclass(frozen=True)
class Cost:
    """The weighted log cost of points, up to a constant.

    Attributes:
        model: Model of log durations, standardized.
        scale: Their deviation, times the weight.
    """

    model: GaussianModel
    scale: float

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return the values (q,) at columns (q, c)."""
        return self.scale * self.model.predict(x)[0]

    def with_slopes(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the values (q,) and their gradients (q, c)."""
        means, _, slopes, _ = self.model.predict_with_slopes(x)
        return self.scale * means, self.scale * slopes


def fit_cost(x: FloatArray, seconds: FloatArray, layout: ThetaLayout, share: float) -> Cost | None:
    """Return the cost of points; None if durations are unknown, equal, or do not count.

    Args:
        x: Columns (n, c) of trials.
        seconds: Durations (n,), NaN if unknown.
        layout: Layout of the columns.
        share: Weight of the cost, from 0 to 1.
    """
    known = seconds >= 0  # not NaN
    logs = np.log(seconds[known] + _ROUNDING)
    if share <= 0 or len(logs) < _LEAST_KNOWN or (deviation := float(np.std(logs))) < _LEAST_DEVIATION:
        return None
    return Cost(fit(x[known], (logs - np.mean(logs)) / deviation, layout), share * deviation)


def share_of_cost(n_ended: int, budget: int | None) -> float:
    """Return the weight of durations after some trials of a budget; a budget of None is unlimited."""
    return _HALF / (_HALF + n_ended) if not budget else max(0.0, 1.0 - n_ended / budget)
