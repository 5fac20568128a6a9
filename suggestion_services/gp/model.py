"""The Gaussian process: predictions from the scores at some rows.

Notation as in `likelihood`; k (q, n) is the covariance of q queried points with the trials.
Source: [Rasmussen2006] Gaussian Processes for Machine Learning, equations 2.25 and 2.26. The inverse of K is kept, so
that a thousand candidates cost one matrix product; the noise on the diagonal keeps it accurate enough.
"""

from __future__ import annotations

import math
from copy import copy

import numpy as np

from suggestion_services.gp.kernel import matern, matern_values, squared_distances
from suggestion_services.gp.likelihood import JITTER, Likelihood, ThetaLayout, half_inverse_of, starts_of, trend_bases
from suggestion_services.gp.optimize import FloatArray, IntArray, minimize
from suggestion_services.gp.warping import kumaraswamy

_MOST_STARTS = 6  # with several objectives, whose models share the time
_TOLERANCE = 3e-3  # of a log density
_STAGES = ((60, 5, 2), (60, 10, 1), (200, 14, 1))  # of a fit: trials, evaluations of the likelihood, starts left
_BLOCK = 256  # rows that are predicted at once, so that their matrices stay in the processor's cache
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
        self.x, self.layout, self.theta, self.loss = x, layout, theta, loss
        self._weights = np.exp(-layout.lengths(theta)[layout.groups])
        self._matern, self.noise, *trends = layout.variances(theta).tolist()
        self._z = self._scaled(x)[0]
        self._trends = np.repeat(trends, (x.shape[1], len(layout.numbers)))  # variance of each column of the bases
        self._of_numbers = np.concatenate([layout.numbers, np.arange(x.shape[1], len(self._trends))])
        self._effects = self._trends * self._bases(x)
        covariance, _ = self._with_trend(self._kernel(self._z), self._bases(x))
        covariance[np.diag_indices(len(x))] += self.noise + JITTER * self._matern
        self._inverse = _safe_inverse(covariance)
        self._know(y)

    def _know(self, y: FloatArray) -> None:
        self.y, self._alpha = y, self._inverse @ y
        self._pull = self._alpha[:, None] * np.column_stack([np.ones(len(y)), self._z])
        self._slopes = self._alpha @ self._effects[:, self._of_numbers]

    def _bases(self, x: FloatArray) -> FloatArray:
        return np.concatenate(trend_bases(x, self.layout), axis=1)

    def _scaled(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return warped and scaled columns (q, c) and their derivatives by the columns."""
        z, by_x = x.copy(), np.ones_like(x)
        w = self.layout.warped
        z[:, w], by_x[:, w], _, _ = kumaraswamy(x[:, w], *self.layout.exponents(self.theta))
        return z * self._weights, by_x * self._weights

    def predict(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means and variances (q,) of the function, without noise, at columns (q, c)."""
        z, bases = self._scaled(x)[0], self._bases(x)
        means, variances = np.empty(len(x)), np.empty(len(x))
        for i in range(0, len(x), _BLOCK):
            part = slice(i, i + _BLOCK)
            k, prior = self._with_trend(self._kernel(z[part]), bases[part])
            means[part] = k @ self._alpha
            variances[part] = prior - np.einsum("ij,ij->i", k @ self._inverse, k)
            np.maximum(variances[part], _LEAST_VARIANCE * prior, out=variances[part])
        return means, variances

    def _kernel(self, z: FloatArray) -> FloatArray:
        """Return the Matern part (q, n) of covariances of warped and scaled columns (q, c) with the trials."""
        k = matern_values(squared_distances(z, self._z))
        k *= self._matern
        return k

    @property
    def means(self) -> FloatArray:
        """The means (n,) at its own columns: the scores without their noise."""
        return np.asarray(self.y - (self.noise + JITTER * self._matern) * self._alpha)

    def _with_trend(self, k: FloatArray, bases: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return covariances (q, n) with the trend's added, and the prior variances (q,)."""
        k += bases @ self._effects.T
        return k, self._matern + (bases * bases) @ self._trends

    def predict_with_slopes(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return means and variances (q,), and the gradients (q, c) of both by the columns that are numbers."""
        z, by_x = self._scaled(x)
        k, slope = matern(squared_distances(z, self._z))
        bases = self._bases(x)
        k, prior = self._with_trend(self._matern * k, bases)
        slope *= 2.0 * self._matern
        v = k @ self._inverse
        by_mean, by_variance = slope @ self._pull, -2.0 * slope * v
        means = (by_mean[:, :1] * z - by_mean[:, 1:]) * by_x
        variances = ((by_variance @ np.ones(len(self.y)))[:, None] * z - by_variance @ self._z) * by_x
        numbers, of_numbers = self.layout.numbers, self._of_numbers
        by_number = self._trend_slopes(x)
        pull = (self._trends * bases)[:, of_numbers] - v @ self._effects[:, of_numbers]
        for total, parts in ((means, by_number * self._slopes), (variances, 2.0 * by_number * pull)):
            total[:, numbers] += parts[:, : len(numbers)] + parts[:, len(numbers) :]
        left = prior - np.einsum("ij,ij->i", v, k)
        return k @ self._alpha, np.maximum(left, _LEAST_VARIANCE * prior), means, variances

    def _trend_slopes(self, x: FloatArray) -> FloatArray:
        """Return the derivatives (q, 2m) of both bases of each number by that number."""
        scale = 1.0 / math.sqrt(self.layout.n_scales)
        numbers = x[:, self.layout.numbers]
        linear = np.full_like(numbers, 2.0 * math.sqrt(3.0) * scale)
        return np.concatenate([linear, (12.0 * numbers - 6.0) * (math.sqrt(5.0) * scale)], axis=1)

    def with_scores(self, y: FloatArray) -> GaussianModel:
        """Return the model of other scores (n,) at the same columns, with the same hyperparameters."""
        model = copy(self)
        model.loss = math.nan
        model._know(y)  # noqa: SLF001
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
            half = half_inverse_of(covariance.copy())[0]
            return np.asarray(half + half.T)
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError("the covariance of the trials is not positive definite")


def fit(x: FloatArray, y: FloatArray, layout: ThetaLayout, starts: FloatArray | None = None) -> GaussianModel:
    """Fit a model of columns (n, c) and scores (n,) with the most probable hyperparameters.

    The starts (s, t) move a few steps, with many trials on a part of them; the better ones continue, on more.
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
    count = len(y)
    starts = starts_of(layout)[-max(_MOST_STARTS // count, 1) :] if starts is None else starts
    thetas, scales = np.repeat(starts, count, axis=0), np.ones(starts.shape[1])
    for most, evaluations, left in _STAGES:
        kept = subset(x, order, most)
        likelihood = Likelihood(x[kept], y[:, kept], layout)
        limits = likelihood.low, likelihood.high
        thetas, losses = minimize(
            likelihood, thetas, *limits, evaluations=evaluations, tolerance=_TOLERANCE, scales=scales
        )
        ranked = np.argsort(losses.reshape(-1, count), axis=0, kind="stable")[:left] * count + np.arange(count)
        thetas, losses, scales = thetas[ranked.ravel()], losses[ranked.ravel()], likelihood.scales
    if len(x) > most:
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
