"""The Gaussian process: predictions from the scores at some rows.

Notation as in `likelihood`; k (q, n) is the covariance of q queried points with the trials.
Source: [Rasmussen2006] Gaussian Processes for Machine Learning, equations 2.25 and 2.26. The inverse of K is kept, so
that a thousand candidates cost one matrix product; the noise on the diagonal keeps it accurate enough.
"""

from __future__ import annotations

import math
from copy import copy

import numpy as np

from suggestion_services.gp.kernel import matern, squared_distances
from suggestion_services.gp.likelihood import JITTER, Likelihood, ThetaLayout, inverse_of, trend_bases
from suggestion_services.gp.optimize import FloatArray, IntArray, minimize
from suggestion_services.gp.warping import kumaraswamy

_ITERATIONS = 30
_FEWER_ITERATIONS, _MOST_STARTS = 15, 6  # with several objectives, whose models share the time
_TOLERANCE = 3e-3  # of a log density
_ROUGH = 80  # trials from which all starts are optimized; the best is then refined
_FINE = 200  # trials of the refinement
_REFINEMENTS = 12  # its iterations
_LEAST_VARIANCE = 1e-12  # share of the prior's, below which it is rounding errors
_EXTRA_JITTERS = (0.0, 1e-8, 1e-6, 1e-4, 1e-2)


class GaussianModel:
    """A Gaussian process with known hyperparameters, conditioned on rows.

    Args:
        x: Columns (n, c).
        y: Scores (n,).
        layout: Of columns and theta.
        theta: Hyperparameters, shape (t,).
        loss: The negative logarithm of their density given the scores, up to a constant; NaN if unknown.

    Attributes:
        noise: Variance of the noise of scores.
    """

    def __init__(
        self, x: FloatArray, y: FloatArray, layout: ThetaLayout, theta: FloatArray, loss: float = math.nan
    ) -> None:
        self.x, self.y, self.layout, self.theta, self.loss = x, y, layout, theta, loss
        self._weights = np.exp(-layout.lengths(theta)[layout.groups])
        self._matern, self.noise, *self._trends = layout.variances(theta).tolist()
        self._z = self._scaled(x)[0]
        self._bases = trend_bases(x, layout)
        covariance = self._matern * matern(squared_distances(self._z, self._z))[0]
        for variance, basis in zip(self._trends, self._bases, strict=True):
            covariance += variance * (basis @ basis.T)
        covariance[np.diag_indices(len(x))] += self.noise + JITTER * self._matern
        self._inverse = _safe_inverse(covariance)
        self._alpha = self._inverse @ y

    def _scaled(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return warped and scaled columns (q, c) and their derivatives by the columns."""
        z, by_x = x.copy(), np.ones_like(x)
        w = self.layout.warped
        z[:, w], by_x[:, w], _, _ = kumaraswamy(x[:, w], *self.layout.exponents(self.theta))
        return z * self._weights, by_x * self._weights

    def predict(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means and variances (q,) of the function, without noise, at columns (q, c)."""
        k = self._matern * matern(squared_distances(self._scaled(x)[0], self._z))[0]
        k, prior = self._with_trend(k, trend_bases(x, self.layout))
        variances = prior - np.einsum("ij,ij->i", k @ self._inverse, k)
        return k @ self._alpha, np.maximum(variances, _LEAST_VARIANCE * prior)

    @property
    def means(self) -> FloatArray:
        """The means (n,) at its own columns: the scores without their noise."""
        return np.asarray(self.y - (self.noise + JITTER * self._matern) * self._alpha)

    def _with_trend(self, k: FloatArray, bases: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Return covariances (q, n) with the trend's added, and the prior variances (q,)."""
        prior = np.full(len(k), self._matern)
        for variance, basis, of_rows in zip(self._trends, bases, self._bases, strict=True):
            k += variance * (basis @ of_rows.T)
            prior += variance * np.sum(basis * basis, axis=1)
        return k, prior

    def predict_with_slopes(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return means and variances (q,), and the gradients (q, c) of both by the columns that are numbers."""
        z, by_x = self._scaled(x)
        k, slope = matern(squared_distances(z, self._z))
        bases = trend_bases(x, self.layout)
        k, prior = self._with_trend(self._matern * k, bases)
        slope *= 2.0 * self._matern
        v = k @ self._inverse
        by_mean, by_variance = slope * self._alpha, -2.0 * slope * v
        means = (np.sum(by_mean, axis=1)[:, None] * z - by_mean @ self._z) * by_x
        variances = (np.sum(by_variance, axis=1)[:, None] * z - by_variance @ self._z) * by_x
        numbers = self.layout.numbers
        for variance, basis, of_rows, by_number in zip(
            self._trends, bases, self._bases, self._trend_slopes(x), strict=True
        ):
            mine, theirs = (b[:, numbers] if b.shape[1] > len(numbers) else b for b in (basis, of_rows))
            means[:, numbers] += variance * by_number * (self._alpha @ theirs)
            variances[:, numbers] += 2.0 * variance * by_number * (mine - v @ theirs)
        total = prior - np.einsum("ij,ij->i", v, k)
        return k @ self._alpha, np.maximum(total, _LEAST_VARIANCE * prior), means, variances

    def _trend_slopes(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the derivatives (q, m) of the bases of each number by that number."""
        scale = 1.0 / math.sqrt(self.layout.n_scales)
        numbers = x[:, self.layout.numbers]
        linear = np.full_like(numbers, 2.0 * math.sqrt(3.0) * scale)
        return linear, (12.0 * numbers - 6.0) * (math.sqrt(5.0) * scale)

    def with_scores(self, y: FloatArray) -> GaussianModel:
        """Return the model of other scores (n,) at the same columns, with the same hyperparameters."""
        model = copy(self)
        model.y, model.loss = y, math.nan
        model._alpha = self._inverse @ y  # noqa: SLF001
        return model

    def believing(self, x: FloatArray) -> GaussianModel:
        """Return the model conditioned on its own means at columns (m, c), which leaves less to learn there."""
        scores = np.concatenate([self.y, self.predict(x)[0]])
        return GaussianModel(np.concatenate([self.x, x]), scores, self.layout, self.theta)


def _safe_inverse(covariance: FloatArray) -> FloatArray:
    """Return the inverse, after adding to the diagonal if necessary."""
    usual = float(np.mean(np.diagonal(covariance)))
    for jitter in _EXTRA_JITTERS:
        covariance[np.diag_indices(len(covariance))] += jitter * usual
        try:
            return inverse_of(covariance)[0]
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError("the covariance of the trials is not positive definite")


def fit(x: FloatArray, y: FloatArray, layout: ThetaLayout, starts: FloatArray | None = None) -> GaussianModel:
    """Fit a model of columns (n, c) and scores (n,) with the most probable hyperparameters.

    With many trials, the starts (s, t) are optimized on a few of them, and the best is refined on more.
    """
    return fit_each(x, y[None], y, layout, starts)[0]


def fit_each(
    x: FloatArray, y: FloatArray, order: FloatArray, layout: ThetaLayout, starts: FloatArray | None = None
) -> list[GaussianModel]:
    """Fit a model for each of several scores (o, n) at the same columns (n, c), together, which is faster; see `fit`.

    Args:
        x: The columns.
        y: The scores.
        order: Numbers (n,), lower for trials that matter more.
        layout: Of columns and theta.
        starts: Hyperparameters (s, t) to start from.
    """
    rough, count = subset(x, order, _ROUGH), len(y)
    likelihood = Likelihood(x[rough], y[:, rough], layout)
    limits = likelihood.low, likelihood.high
    starts = likelihood.starts[-max(_MOST_STARTS // count, 1) :] if starts is None else starts
    starts = np.repeat(starts, count, axis=0)
    iterations = _ITERATIONS if count == 1 else _FEWER_ITERATIONS
    thetas, values = minimize(likelihood, starts, *limits, iterations=iterations, tolerance=_TOLERANCE)
    best = np.argmin(values.reshape(-1, count), axis=0) * count + np.arange(count)
    thetas, losses = thetas[best], values[best]
    if len(x) > _ROUGH * max(count - 1, 1):
        fine = subset(x, order, _FINE)
        likelihood = Likelihood(x[fine], y[:, fine], layout)
        thetas = minimize(likelihood, thetas, *limits, iterations=_REFINEMENTS, tolerance=_TOLERANCE)[0]
        losses = np.full(count, math.nan)  # of a part only
    return [GaussianModel(x, *one) for one in zip(y, [layout] * count, thetas, losses.tolist(), strict=True)]


def subset(rows: FloatArray, scores: FloatArray, most: int) -> IntArray:
    """Return the indices of the kept rows (n, d) if there are more than `most`, in their order.

    A third has the best scores, a third is nearest to the best row, and the rest is random, so that the model is exact
    near the optimum and covers the whole space. The same history gives the same subset.
    """
    if len(rows) <= most:
        return np.arange(len(rows))
    share = most // 3
    order = np.argsort(scores, kind="stable")
    distances = np.sum((rows - rows[order[0]]) ** 2, axis=1)
    kept = np.zeros(len(rows), dtype=bool)
    kept[order[:share]] = True
    kept[np.argsort(np.where(kept, np.inf, distances), kind="stable")[:share]] = True
    others = np.flatnonzero(~kept)
    chosen = np.random.default_rng(len(rows)).permutation(len(others))[: most - int(kept.sum())]
    kept[others[chosen]] = True
    return np.flatnonzero(kept)
