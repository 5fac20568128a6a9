"""Distribution of a numeric parameter's values between two bounds.

Notation: x a value, t in [0, 1] its position between the bounds (on a linear or a logarithmic axis), u in [0, 1] the
cumulative probability below it. For uniform and logUniform u = t. For normal and logNormal the mean is the middle of
the axis and six standard deviations cover it, as in hyperopt's conversion of Katib's distributions; unlike there, the
tails outside the bounds are cut off, so that no value leaves the feasible space.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from katib.model.types import Distribution

_SIGMAS = 3.0  # from the middle of the axis to either bound
_TAIL = 0.5 * math.erfc(_SIGMAS / math.sqrt(2.0))  # probability below the lower bound, before cutting


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution between two finite bounds, `low < high`; both are positive if it is logarithmic."""

    low: float
    high: float
    distribution: Distribution = Distribution.UNIFORM

    @property
    def logarithmic(self) -> bool:
        """Whether equal ratios, not equal differences, have equal distances."""
        return self.distribution in (Distribution.LOG_UNIFORM, Distribution.LOG_NORMAL)

    @property
    def bell(self) -> bool:
        """Whether the middle is more likely than the ends."""
        return self.distribution in (Distribution.NORMAL, Distribution.LOG_NORMAL)

    def value(self, u: float) -> float:
        """Return the quantile: the value with cumulative probability u."""
        t = _bell_quantile(u) if self.bell else u
        if self.logarithmic:
            x = math.exp(math.log(self.low) * (1.0 - t) + math.log(self.high) * t)
        else:
            x = self.low * (1.0 - t) + self.high * t  # this form cannot overflow, low + t * (high - low) can
        return min(max(x, self.low), self.high)

    def share(self, x: float) -> float:
        """Return the cumulative probability of a value; values outside count as the nearest bound."""
        x = min(max(x, self.low), self.high)
        if self.logarithmic:
            t = (math.log(x) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        else:
            t = (x / 2 - self.low / 2) / (self.high / 2 - self.low / 2)  # halves: the difference cannot overflow
        t = min(max(t, 0.0), 1.0)
        return _bell_share(t) if self.bell else t


def _bell_share(t: float) -> float:
    z = (2.0 * t - 1.0) * _SIGMAS
    below = 0.5 * math.erfc(-z / math.sqrt(2.0))
    return min(max((below - _TAIL) / (1.0 - 2.0 * _TAIL), 0.0), 1.0)


def _bell_quantile(u: float) -> float:
    z = _standard_normal().inv_cdf(_TAIL + u * (1.0 - 2.0 * _TAIL))  # type: ignore[attr-defined]  # see below
    return min(max((float(z) / _SIGMAS + 1.0) / 2.0, 0.0), 1.0)


@cache
def _standard_normal() -> object:
    from statistics import NormalDist  # late: most searches have no normal parameter, and the module is not small

    return NormalDist()
