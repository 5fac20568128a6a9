"""Posterior density of hyperparameters, given the observations.

Notation: n trials, c columns of the kernel, d parameters; X (n, c) columns in [0, 1], y (n,) scores. theta (s, t) holds
s candidates of t hyperparameters, all as logarithms, in this order: d length scales, the variances of the Matern part,
of the noise and of the two parts of the trend, then the exponents a and b of each warped number.

K = matern k(w(X), w(X)) + linear F F' + quadratic Q Q' + noise I, where F and Q are the bases of the trend.

Source: [Rasmussen2006] Gaussian Processes for Machine Learning, equations 5.8 and 5.9; section 2.7 for a trend with
weights that are integrated out. The priors:

* length scales grow with the square root of the number of dimensions, so that the effect of another dimension does not
  grow: [Hvarfner2024] Vanilla Bayesian Optimization Performs Great in High Dimensions, ICML;
* exponents of warps are 1 unless the trials indicate otherwise: a prior with heavy tails, whose slope is steep near 1,
  keeps noise from bending a dozen axes a little, and lets an undeclared logarithmic scale bend one a lot. [Snoek2014]
  has normal priors;
* the trend, main effects that are linear and quadratic, and one effect per category, is small until it is observed. It
  learns from few trials effects for which a local kernel needs many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from suggestion_services.gp.kernel import matern, squared_distances
from suggestion_services.gp.optimize import FloatArray, IntArray
from suggestion_services.gp.warping import kumaraswamy

JITTER = 1e-9  # share of the Matern variance added to the diagonal, above the rounding errors of distances

_LENGTH_CENTER, _LENGTH_SPREAD = math.sqrt(2.0), math.sqrt(3.0)  # of log length, for one dimension
_MATERN_SPREAD = 1.0
_NOISE_CENTER, _NOISE_SPREAD = math.log(1e-4), 3.0
_TREND_CENTER, _TREND_SPREAD = math.log(0.1), 2.0
_WARP_SPREAD = 0.1
_LENGTH_LIMITS = math.log(0.01), math.log(1e3)
_MATERN_LIMITS = math.log(0.01), math.log(1e3)
_NOISE_LIMITS = math.log(1e-7), 0.0
_TREND_LIMITS = math.log(1e-4), math.log(100.0)
_WARP_LIMITS = -2.0, 2.0
_STARTS = ((0.5, 1e-5), (2.0, 1e-5), (1.0, 1e-1))  # length scale for one dimension, and noise


@dataclass(frozen=True)
class ThetaLayout:
    """Positions in columns and in theta.

    Attributes:
        groups: For each column its parameter, shape (c,).
        warped: The columns that are warped, shape (w,).
        numbers: The columns that are numbers, shape (m,).
    """

    groups: IntArray
    warped: IntArray
    numbers: IntArray

    @property
    def n_scales(self) -> int:
        """d, the number of length scales."""
        return int(self.groups[-1]) + 1

    def expand(self, scales: float, matern: float, noise: float, trend: float, warp: float) -> FloatArray:
        """Return a row (t,) with one value for each kind of hyperparameter."""
        kinds = [scales] * self.n_scales + [matern, noise, trend, trend] + [warp] * (2 * len(self.warped))
        return np.array(kinds, dtype=np.float64)

    def lengths(self, theta: FloatArray) -> FloatArray:
        """Return the logarithms of the length scales (..., d)."""
        return theta[..., : self.n_scales]

    def variances(self, theta: FloatArray) -> FloatArray:
        """Return the variances (..., 4) of Matern part, noise, linear and quadratic trend."""
        return np.asarray(np.exp(theta[..., self.n_scales : self.n_scales + 4]))

    def exponents(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a and b, shape (..., w) each."""
        start, w = self.n_scales + 4, len(self.warped)
        return np.exp(theta[..., start : start + w]), np.exp(theta[..., start + w :])


def trend_bases(x: FloatArray, layout: ThetaLayout) -> tuple[FloatArray, FloatArray]:
    """Return the bases of the trend at columns (n, c): (n, c) linear ones and those of categories, (n, m) quadratic.

    Legendre polynomials on [0, 1], scaled so that a variance has the same meaning in any number of dimensions.
    """
    scale = 1.0 / math.sqrt(layout.n_scales)
    numbers = x[:, layout.numbers]
    linear = x * (math.sqrt(2.0) * scale)
    linear[:, layout.numbers] = (2.0 * numbers - 1.0) * (math.sqrt(3.0) * scale)
    return linear, (6.0 * numbers * (numbers - 1.0) + 1.0) * (math.sqrt(5.0) * scale)


def inverse_of(covariance: FloatArray) -> tuple[FloatArray, float]:
    """Return the inverse of a positive definite matrix (n, n), and the logarithm of the square root of its determinant.

    Raises:
        np.linalg.LinAlgError: It is not positive definite.
    """
    factor, info = dpotrf(covariance, lower=1)
    if info:
        raise np.linalg.LinAlgError("not positive definite")
    half = float(np.sum(np.log(np.diagonal(factor))))
    lower, _ = dpotri(factor, lower=1, overwrite_c=1)  # above the diagonal it is zero
    inverse = lower + lower.T
    inverse[np.diag_indices(len(inverse))] *= 0.5
    return inverse, half


class Likelihood:
    """The negative logarithm of the posterior density, up to a constant, and its gradient, for several theta at once.

    Args:
        x: Columns (n, c).
        y: Scores (n,), or those (o, n) of several objectives: start i of a minimization is for objective i modulo o.
        layout: Of columns and theta.
    """

    def __init__(self, x: FloatArray, y: FloatArray, layout: ThetaLayout) -> None:
        self._x, self._y, self._layout = x, np.atleast_2d(y), layout
        self._bases = [basis @ basis.T for basis in trend_bases(x, layout)]
        self._of_parameter = (layout.groups[:, None] == np.arange(layout.n_scales)).astype(np.float64)  # sums columns
        grown = 0.5 * math.log(layout.n_scales)
        self._center = layout.expand(_LENGTH_CENTER + grown, 0.0, _NOISE_CENTER, _TREND_CENTER, 0.0)
        self._spread = layout.expand(_LENGTH_SPREAD, _MATERN_SPREAD, _NOISE_SPREAD, _TREND_SPREAD, _WARP_SPREAD)
        limits = (_LENGTH_LIMITS, _MATERN_LIMITS, _NOISE_LIMITS, _TREND_LIMITS, _WARP_LIMITS)
        self.low, self.high = (layout.expand(*(limit[side] for limit in limits)) for side in (0, 1))
        self.starts = np.array(
            [
                layout.expand(math.log(length) + grown, 0.0, math.log(noise), _TREND_CENTER, 0.0)
                for length, noise in _STARTS
            ]
        )

    def __call__(self, theta: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return values (s,) and gradients (s, t) of these starts; infinite values if K is not positive definite."""
        layout, d = self._layout, self._layout.n_scales
        values, gradients = self._prior(theta)
        weights = np.exp(-layout.lengths(theta)[:, layout.groups])[:, None, :]
        z = np.repeat(self._x[None], len(theta), axis=0)
        w = layout.warped
        a, b = layout.exponents(theta)
        warped, _, by_a, by_b = kumaraswamy(self._x[:, w], a[:, None], b[:, None])
        z[:, :, w] = warped
        z *= weights
        k, slope = matern(squared_distances(z, z))
        variances = layout.variances(theta)
        pull = np.zeros_like(k)  # derivative of a value by its K
        for i in range(len(theta)):
            found = self._data_term(k[i], variances[i], self._y[rows[i] % len(self._y)])
            if found is None:
                values[i] = np.inf
            else:
                values[i] += found[0]
                pull[i] = found[1]
        flat = pull.reshape(len(theta), -1)
        gradients[:, d] += variances[:, 0] * np.einsum("ij,ij->i", flat, k.reshape(flat.shape))
        gradients[:, d + 1] += variances[:, 1] * np.trace(pull, axis1=1, axis2=2)
        for j, basis in enumerate(self._bases):
            gradients[:, d + 2 + j] += variances[:, 2 + j] * (flat @ basis.ravel())
        pull *= slope
        pull *= variances[:, 0, None, None]
        by_z = 4.0 * (np.sum(pull, axis=2)[:, :, None] * z - pull @ z)
        gradients[:, :d] -= np.sum(by_z * z, axis=1) @ self._of_parameter
        by_z = by_z[:, :, w] * weights[:, :, w]
        gradients[:, d + 4 :] += np.concatenate([np.sum(by_z * by_a, axis=1), np.sum(by_z * by_b, axis=1)], axis=1)
        return values, gradients

    def _prior(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the prior's part of values and gradients: normal, except for the heavy tails of warps."""
        n = self._layout.n_scales + 4
        offset = (theta - self._center) / self._spread
        squared = offset * offset
        values = 0.5 * np.sum(squared[:, :n], axis=1) + np.sum(np.log1p(squared[:, n:]), axis=1)
        gradients = offset / self._spread
        gradients[:, n:] *= 2.0 / (1.0 + squared[:, n:])
        return values, gradients

    def _data_term(self, k: FloatArray, variances: FloatArray, y: FloatArray) -> tuple[float, FloatArray] | None:
        """Return the data's part of a value and its derivative by K, for kernel values k (n, n) and scores y (n,)."""
        covariance = variances[0] * k
        for variance, basis in zip(variances[2:], self._bases, strict=True):
            covariance += variance * basis
        covariance[np.diag_indices(len(k))] += variances[1] + JITTER * variances[0]
        try:
            inverse, half_determinant = inverse_of(covariance)
        except np.linalg.LinAlgError:
            return None
        alpha = inverse @ y
        return 0.5 * float(y @ alpha) + half_determinant, 0.5 * (inverse - np.outer(alpha, alpha))
