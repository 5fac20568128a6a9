"""Certainty of repeated runs: means with intervals, and the probability that each configuration is the best.

Notation: k configurations; n (k,) runs; y values, lower is better; mu (k,) true means, v (k,) variance of a mean.
Model: y_ij ~ N(mu_i, sigma_i^2). The variance of a configuration shrinks to that of the others, which weighs as
`_SHARED_RUNS` runs at most. mu_i ~ N(m, tau^2) with a flat m, and a half-Cauchy tau on the scale of the noise: the best
trials of a search differ little, so that differences of their means are partly luck. The posterior is sampled with a
fixed seed: tau from a grid, then mu given tau.
Source: [Gelman2013] Bayesian Data Analysis, 3rd edition, section 5.4, the normal model with exchangeable parameters;
[Gelman2006] Prior distributions for variance parameters in hierarchical models, Bayesian Analysis 1(3), for tau.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from katib.service.tuning.service import INTERVAL_LEVEL

Floats = npt.NDArray[np.float64]

_SHARED_RUNS: Final = 4.0
_DRAWS: Final = 8_000
"""The error of a probability is below 0.6 points."""

_SPREADS: Final = np.geomspace(0.01, 100.0, 60)
"""Grid of tau, in standard deviations of the noise."""


@dataclass(frozen=True, slots=True)
class MeanEstimate:
    """The mean of the runs of a configuration.

    Attributes:
        mean: Mean of the values.
        low: Lower bound of the interval; None if unknown.
        high: Upper bound.
        probability: Probability that no other configuration has a lower true mean; None if unknown.
        behind: Probability that the configuration of the lowest mean is truly lower; None for that one itself, and if
            unknown.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    probability: float | None = None
    behind: float | None = None


def estimates(runs: Sequence[Sequence[float]]) -> list[MeanEstimate]:
    """Return the mean of each configuration, its interval, and the probability that it is the best.

    Nothing but the means is known if no configuration has two runs. Without any noise, only equal means leave a doubt.

    Args:
        runs: Finite values of each configuration, at least one; lower is better.
    """
    counts = np.array([len(values) for values in runs], np.float64)
    largest = max(abs(value) for values in runs for value in values) or 1.0  # squares of very large values overflow
    scaled = [np.asarray(values, np.float64) / largest for values in runs]
    means = np.array([values.mean() for values in scaled])
    squares = np.array([((values - values.mean()) ** 2).sum() for values in scaled])
    if not (degrees := counts - 1).any():
        return [MeanEstimate(float(mean * largest)) for mean in means]
    variances, degrees = _shrunk(squares, degrees)
    v = variances / counts
    noise = float(np.sqrt(squares.sum() / (counts - 1).sum()))
    if noise <= np.finfo(np.float64).eps:  # a deterministic program
        ties = np.isclose(means, means.min(), rtol=0.0, atol=4 * np.finfo(np.float64).eps)
        best, behind = ties / ties.sum(), np.where(ties, 0.5, 1.0)
    else:
        drawn = _drawn(means, variances, degrees, counts, noise)
        best = np.bincount(drawn.argmin(axis=1), minlength=len(means)) + 0.5  # draws never make anything certain
        best /= best.sum()
        behind = ((drawn[:, [means.argmin()]] < drawn).sum(axis=0) + 0.5) / (_DRAWS + 1)
    half = stdtrit(degrees, (1 + INTERVAL_LEVEL) / 2) * np.sqrt(v)
    first = int(means.argmin())
    return [
        MeanEstimate(
            float(means[i] * largest),
            float((means[i] - half[i]) * largest),
            float((means[i] + half[i]) * largest),
            float(best[i]),
            None if i == first else float(behind[i]),
        )
        for i in range(len(means))
    ]


def _shrunk(squares: Floats, degrees: Floats) -> tuple[Floats, Floats]:
    """Return the variance of each configuration's noise, shrunk to that of the others, and its degrees of freedom."""
    others = degrees.sum() - degrees
    pooled = np.divide(squares.sum() - squares, others, out=np.zeros_like(squares), where=others > 0)
    weight = np.minimum(others, _SHARED_RUNS)
    return (weight * pooled + squares) / (weight + degrees), weight + degrees


def _drawn(means: Floats, variances: Floats, degrees: Floats, counts: Floats, noise: float) -> Floats:
    """Return draws (_DRAWS, k) of the true means from the posterior."""
    random = np.random.default_rng(0)
    chi = random.chisquare(degrees, (_DRAWS, len(means)))
    v = variances * degrees / chi / counts  # (d, k)
    tau = noise * _SPREADS
    total = v[:, :, None] + tau**2  # (d, k, g)
    precision = (1 / total).sum(axis=1)  # (d, g)
    middle = (means[:, None] / total).sum(axis=1) / precision
    fit = -0.5 * (np.log(total) + (means[:, None] - middle[:, None, :]) ** 2 / total).sum(axis=1)
    # p(tau) dtau of the half-Cauchy on a geometric grid: tau / (1 + tau^2) up to a constant
    log_weight = fit - 0.5 * np.log(precision) + np.log(_SPREADS / (1 + _SPREADS**2))
    chosen = (log_weight + random.gumbel(size=log_weight.shape)).argmax(axis=1)  # a draw by these weights
    rows = np.arange(_DRAWS)
    m = middle[rows, chosen] + random.standard_normal(_DRAWS) / np.sqrt(precision[rows, chosen])
    spread = tau[chosen][:, None] ** 2
    share = spread / (spread + v)
    center = share * means + (1 - share) * m[:, None]
    drawn: Floats = center + random.standard_normal(v.shape) * np.sqrt(share * v)
    return drawn
