"""The race: whether a configuration can still have a better mean than the best one. Pure, without NumPy.

Notation: n runs with costs y, lower is better; ss sum of squared deviations from their mean.
Model: that of `katib.service.tuning.certainty`, without its common distribution of means: the variance of a
configuration's noise shrinks to that of the others, which weighs as `_SHARED_RUNS` runs at most.
Source: [Welch1947] The generalization of Student's problem when several different population variances are involved,
Biometrika 34, for the degrees of freedom; [Maron1994] Hoeffding races, NIPS 6, for the idea. Differs from the latter: a
t-test takes the place of Hoeffding's bound, which needs hundreds of runs, and the best is fixed while a race is judged.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

DOUBT: Final = 0.05
"""A configuration is out once the probability that its mean is the better one is below this."""

_SHARED_RUNS: Final = 4.0


class Spread(NamedTuple):
    """Sum of squared deviations of runs from their means, and its degrees of freedom."""

    squares: float = 0.0
    degrees: int = 0


class Sample(NamedTuple):
    """The finite costs of a configuration's runs.

    Attributes:
        mean: Their mean.
        number: Their number, at least one.
        squares: Sum of squared deviations from the mean.
    """

    mean: float
    number: int
    squares: float


def cannot_win(sample: Sample, best: Sample, noise: Spread) -> bool:
    """Return whether a configuration is worse than the best one beyond doubt.

    Args:
        sample: Runs of the configuration.
        best: Runs of the best one.
        noise: Of all configurations, including these. Without any degrees of freedom nothing is beyond doubt.
    """
    difference = sample.mean - best.mean
    if difference <= 0 or not noise.degrees:
        return False
    parts = [(_variance(one, noise), one.number) for one in (sample, best)]
    error = sum(variance / count for (variance, _), count in parts)
    if math.sqrt(error) <= 1e-12 * max(abs(sample.mean), abs(best.mean)):  # a deterministic program
        return True
    terms = [(variance / count) ** 2 / degrees for (variance, degrees), count in parts if degrees > 0]
    degrees = error**2 / sum(terms) if sum(terms) > 0 else 1.0
    return upper_tail(difference / math.sqrt(error), max(math.floor(degrees), 1)) < DOUBT


def _variance(sample: Sample, noise: Spread) -> tuple[float, float]:
    """Return the variance of a configuration's noise, shrunk to that of the others, and its degrees of freedom."""
    own = sample.number - 1
    others = noise.degrees - own
    weight = min(float(others), _SHARED_RUNS)
    pooled = max(noise.squares - sample.squares, 0.0) / others if others else 0.0
    return (weight * pooled + sample.squares) / (weight + own), weight + own


def upper_tail(t: float, degrees: int) -> float:
    """Return P(T > t) of Student's distribution with whole degrees of freedom ([Abramowitz1964] 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(degrees))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    term = math.cos(angle) if degrees % 2 else 1.0
    total = 0.0 if degrees == 1 else term
    for k in range(2 + degrees % 2, degrees - 1, 2):
        term *= square * (k - 1) / k
        total += term
    inside = 2 / math.pi * (angle + sine * total) if degrees % 2 else sine * total
    return (1 - inside) / 2
