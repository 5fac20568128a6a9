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
_WARP_SCALE = 0.5
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


def starts_of(layout: ThetaLayout) -> FloatArray:
    """Return hyperparameters (s, t) to start a fit from."""
    grown = 0.5 * math.log(layout.n_scales)
    starts = [
        layout.expand(math.log(length) + grown, 0.0, math.log(noise), _TREND_CENTER, 0.0) for length, noise in _STARTS
    ]
    return np.array(starts)


def half_inverse_of(covariance: FloatArray) -> tuple[FloatArray, float]:
    """Return half of an inverse, and the logarithm of the square root of the determinant.

    Args:
        covariance: A positive definite matrix (n, n), which is overwritten.

    Returns:
        A triangular matrix (n, n), of which the sum with its transpose is the inverse; the logarithm.

    Raises:
        np.linalg.LinAlgError: It is not positive definite.
    """
    factor, info = dpotrf(covariance.T, lower=1, overwrite_a=1)  # symmetric, and in the order of Fortran
    if info:
        raise np.linalg.LinAlgError("not positive definite")
    half_determinant = float(np.sum(np.log(np.diagonal(factor))))
    half = dpotri(factor, lower=1, overwrite_c=1)[0].T  # the other triangle is zero
    half.ravel()[:: len(half) + 1] *= 0.5
    return half, half_determinant


class Likelihood:
    """The negative logarithm of the posterior density, up to a constant, and its gradient, for several theta at once.

    Args:
        x: Columns (n, c).
        y: Scores (n,), or those (o, n) of several objectives: start i of a minimization is for objective i modulo o.
        layout: Of columns and theta.

    Attributes:
        low: Lower bounds of theta (t,).
        high: Upper bounds.
        scales: Usual changes (t,) of theta: the deviations of the prior, but of warps more, whose tails are heavy.
    """

    def __init__(self, x: FloatArray, y: FloatArray, layout: ThetaLayout) -> None:
        self._x, self._y, self._layout = x, np.atleast_2d(y), layout
        self._bases = [basis @ basis.T for basis in trend_bases(x, layout)]
        self._of_parameter = (layout.groups[:, None] == np.arange(layout.n_scales)).astype(np.float64)  # sums columns
        grown = 0.5 * math.log(layout.n_scales)
        self._center = layout.expand(_LENGTH_CENTER + grown, 0.0, _NOISE_CENTER, _TREND_CENTER, 0.0)
        self._spread = layout.expand(_LENGTH_SPREAD, _MATERN_SPREAD, _NOISE_SPREAD, _TREND_SPREAD, _WARP_SPREAD)
        self.scales = layout.expand(_LENGTH_SPREAD, _MATERN_SPREAD, _NOISE_SPREAD, _TREND_SPREAD, _WARP_SCALE)
        limits = (_LENGTH_LIMITS, _MATERN_LIMITS, _NOISE_LIMITS, _TREND_LIMITS, _WARP_LIMITS)
        self.low, self.high = (layout.expand(*(limit[side] for limit in limits)) for side in (0, 1))

    def __call__(self, theta: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return values (s,) and gradients (s, t) of these starts; infinite values if K is not positive definite."""
        layout, d, w = self._layout, self._layout.n_scales, self._layout.warped
        values, gradients = self._prior(theta)
        weights = np.exp(-layout.lengths(theta)[:, layout.groups])[:, None, :]
        z = np.repeat(self._x[None], len(theta), axis=0)
        a, b = layout.exponents(theta)
        z[:, :, w], _, by_a, by_b = kumaraswamy(self._x[:, w], a[:, None], b[:, None])
        z *= weights
        variances = layout.variances(theta)
        by_z = np.zeros_like(z)
        for i in range(len(theta)):  # one at a time, so that its matrices stay in the processor's cache
            y = self._y[rows[i] % len(self._y)]
            values[i] += self._data_term(z[i], variances[i], y, gradients[i, d : d + 4], by_z[i])
        gradients[:, :d] -= np.einsum("snc,snc->sc", by_z, z) @ self._of_parameter
        by_z = by_z[:, :, w] * weights[:, :, w]
        by_exponents = [np.einsum("snw,snw->sw", by_z, each) for each in (by_a, by_b)]
        gradients[:, d + 4 :] += np.concatenate(by_exponents, axis=1)
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

    def _data_term(
        self, z: FloatArray, variances: FloatArray, y: FloatArray, by_variance: FloatArray, by_z: FloatArray
    ) -> float:
        """Return the data's part of a value; add its gradients by log variances (4,) and set those by z.

        Args:
            z: Warped and scaled columns (n, c).
            variances: See `ThetaLayout.variances`.
            y: Scores (n,).
            by_variance: Gradient (4,), to which is added.
            by_z: Gradient (n, c), which is set.
        """
        k, slope = matern(squared_distances(z, z))
        covariance = variances[0] * k
        for variance, basis in zip(variances[2:], self._bases, strict=True):
            covariance += variance * basis
        covariance.ravel()[:: len(y) + 1] += variances[1] + JITTER * variances[0]
        try:
            half, half_determinant = half_inverse_of(covariance)
        except np.linalg.LinAlgError:
            return np.inf
        alpha = half @ y + y @ half
        half -= (0.5 * alpha)[:, None] * alpha  # derivative of the value by K, after adding its transpose and halving
        flat = half.ravel()
        by_variance[0] += variances[0] * (flat @ k.ravel())
        by_variance[1] += variances[1] * np.sum(flat[:: len(y) + 1])
        for j, basis in enumerate(self._bases, start=2):
            by_variance[j] += variances[j] * (flat @ basis.ravel())
        half *= slope
        ones = np.ones(len(y))
        by_z[:] = (2.0 * variances[0]) * ((half @ ones + ones @ half)[:, None] * z - half @ z - half.T @ z)
        return 0.5 * float(y @ alpha) + half_determinant
