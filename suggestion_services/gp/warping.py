"""Warping of inputs and outcomes, so that a stationary model fits scales that were not declared.

Inputs: w(x) = 1 - (1 - x^a)^b maps [0, 1] onto itself; a < 1 stretches the lower end, as an undeclared logarithm
would. Source: [Snoek2014] Input Warping for Bayesian Optimization of Non-Stationary Functions, ICML, with the
distribution of Kumaraswamy instead of the beta distribution, since it has a closed form.

Outcomes: a power transform makes skewed values nearly normal. Source: [Yeo2000] A New Family of Power Transformations,
Biometrika 87(4); for optimization [Cowen-Rivers2022] HEBO, JAIR 74, section 4.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from suggestion_services.gp.optimize import FloatArray

_EDGE = 1e-6  # nearer to the ends of [0, 1] the derivatives of a warp may be infinite
_POWERS = np.linspace(-4.0, 4.0, 81)
_ZERO = 1e-6  # powers nearer to a limit case are replaced by it
_NO_VARIANCE = 1e-20


def kumaraswamy(x: FloatArray, a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return w(x) and its derivatives by x, log a and log b; all arguments broadcast."""
    x = np.clip(x, _EDGE, 1.0 - _EDGE)
    log_x = np.log(x)
    power = np.exp(a * log_x)
    rest = 1.0 - power
    log_rest = np.log(rest)
    tail = np.exp(b * log_rest)
    inner = b * tail / rest * power * a
    return 1.0 - tail, inner / x, inner * log_x, -b * tail * log_rest


@dataclass(frozen=True)
class OutcomeTransform:
    """Standard scores of power-transformed values, monotone: lower stays lower.

    Attributes:
        center: Subtracted first.
        scale: Divisor after that.
        power: Lambda of Yeo and Johnson; 1 changes nothing.
        mean: Of the transformed values.
        deviation: Of the transformed values.
    """

    center: float
    scale: float
    power: float
    mean: float
    deviation: float

    def __call__(self, values: FloatArray) -> FloatArray:
        """Return the scores of values (n,)."""
        return (yeo_johnson((values - self.center) / self.scale, self.power) - self.mean) / self.deviation

    def log_slopes(self, values: FloatArray) -> FloatArray:
        """Return the logarithms (n,) of the derivatives of scores at values, in units of `scale`."""
        z = (values - self.center) / self.scale
        return (self.power - 1.0) * np.sign(z) * np.log1p(np.abs(z)) - math.log(self.deviation)


def yeo_johnson(z: FloatArray, power: float | FloatArray) -> FloatArray:
    """Return the transformed values; both arguments broadcast."""
    with np.errstate(over="ignore"):
        up, down = np.log1p(np.maximum(z, 0.0)), np.log1p(np.maximum(-z, 0.0))
        return np.where(z >= 0, _powered(up, np.asarray(power)), -_powered(down, 2.0 - np.asarray(power)))


def _powered(logs: FloatArray, power: FloatArray) -> FloatArray:
    limit = np.abs(power) < _ZERO
    return np.where(limit, logs, np.expm1(power * logs) / np.where(limit, 1.0, power))


def fit_transform(values: FloatArray) -> OutcomeTransform:
    """Fit the transform under which the values (n,) are closest to normal; n >= 1, all finite."""
    center, scale = float(np.mean(values)), float(np.std(values))
    if not scale > 1e-12 * max(1.0, abs(center)):
        return OutcomeTransform(center, max(1.0, abs(center)), 1.0, 0.0, 1.0)  # the mean of huge values is not exact
    z = (values - center) / scale
    jacobian = np.sum(np.sign(z) * np.log1p(np.abs(z)))
    variances = np.var(yeo_johnson(z, _POWERS[:, None]), axis=1)
    usable = variances > _NO_VARIANCE
    scores = -0.5 * len(z) * np.log(np.where(usable, variances, np.inf)) + (_POWERS - 1.0) * jacobian
    best = float(_POWERS[np.argmax(scores)]) if np.any(usable) else 1.0
    t = yeo_johnson(z, best)
    return OutcomeTransform(center, scale, best, float(np.mean(t)), float(np.std(t)))
