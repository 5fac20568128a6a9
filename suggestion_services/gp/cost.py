"""What trials cost: a model of how long they take, and how much that counts against what a point promises.

Notation: t (n,) seconds of trials; c(x) the mean of a Gaussian process of log(t + 1/2), half a second because durations
come in whole ones; r in [0, 1] how much they count. The promise of a point is log EI(x) - r c(x).

Source: [Snoek2012] Practical Bayesian Optimization of Machine Learning Algorithms, NeurIPS 25, section 3.2: expected
improvement per second, r = 1, which stays where trials are cheap. [Lee2020] Cost-aware Bayesian Optimization,
arXiv:2003.10870, section 4.2: so r falls from 1 to 0 as the budget is spent. Differs from it: the budget is counted in
trials, which is all that a search knows of it; without one, r is a half after 20 trials and goes on falling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from suggestion_services.gp.likelihood import Layout
from suggestion_services.gp.model import Model, fit
from suggestion_services.gp.optimize import FloatArray

_LEAST_KNOWN = 3
_LEAST_DEVIATION = 0.05  # of log seconds: trials that take as long as each other within five percent are alike
_ROUNDING = 0.5
_HALF = 20


@dataclass(frozen=True)
class Cost:
    """The logarithm of what points cost, up to a constant, times how much it counts.

    Attributes:
        model: Of log durations, standardized.
        scale: Their deviation, times how much they count.
    """

    model: Model
    scale: float

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return it for columns (q, c), shape (q,)."""
        return self.scale * self.model.predict(x)[0]

    def with_slopes(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return it (q,) and its gradients (q, c)."""
        means, _, slopes, _ = self.model.predict_with_slopes(x)
        return self.scale * means, self.scale * slopes


def fit_cost(x: FloatArray, seconds: FloatArray, layout: Layout, share: float) -> Cost | None:
    """Return what points cost; None where durations are unknown, alike, or do not count.

    Args:
        x: Columns (n, c) of trials.
        seconds: How long they took (n,), NaN where unknown.
        layout: Of the columns.
        share: How much that counts, from 0 to 1.
    """
    known = seconds >= 0  # not NaN
    logs = np.log(seconds[known] + _ROUNDING)
    if share <= 0 or len(logs) < _LEAST_KNOWN or (deviation := float(np.std(logs))) < _LEAST_DEVIATION:
        return None
    return Cost(fit(x[known], (logs - np.mean(logs)) / deviation, layout), share * deviation)


def share_of_cost(n_ended: int, budget: int | None) -> float:
    """Return how much durations count after so many trials of a budget; None: there is no budget."""
    return _HALF / (_HALF + n_ended) if not budget else max(0.0, 1.0 - n_ended / budget)
