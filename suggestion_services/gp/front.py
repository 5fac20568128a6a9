"""Improvement of a Pareto front: the log expected hypervolume improvement.

Notation: m objectives, lower is better in each; a front (f, m) of scores and a reference point (m,) that it is measured
from. The region that is better than the reference and not dominated by the front is cut into disjoint boxes [a, b];
their lower bounds may be infinite. A point y adds to the hypervolume, in each box, the product over the objectives of
(b - max(a, y))+ = (b - y)+ - (a - y)+. With independent models the expectation of the product is that of the factors,
and E (b - y)+ is the expected improvement on b; so the sum over boxes is exact and has a gradient.

Sources: [Emmerich2011] Hypervolume-based expected improvement: Monotonicity properties and exact computation, CEC;
[Yang2019] Efficient computation of expected hypervolume improvement using box decomposition algorithms, Journal of
Global Optimization 75; [Daulton2021] Parallel Bayesian Optimization of Multiple Noisy Objectives with Expected
Hypervolume Improvement, NeurIPS 34 (running trials); [Ament2023], see `acquisition`, for its logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy.special import ndtr
from typing_extensions import override

from katib.model.pareto import spread
from suggestion_services.gp.acquisition import NOISY, Acquisition, log_h
from suggestion_services.gp.encoding import Encoding
from suggestion_services.gp.history import ModelHistory, beaten_by
from suggestion_services.gp.likelihood import ThetaLayout
from suggestion_services.gp.model import GaussianModel, fit_each, subset
from suggestion_services.gp.optimize import BoolArray, FloatArray, IntArray
from suggestion_services.gp.warping import fit_transform

_MARGIN = 0.1  # of the reference point beyond the front, as a share of the front's reach
_SAME = 1e-12
_LEAST = 1e-12  # smaller gains are equal, unless all are, which takes logarithms
_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)
_MOST_POINTS = {2: 200, 3: 100, 4: 20}
_FEWEST_POINTS = 10  # with more objectives: the number of boxes grows to a power of half their number
_SWEPT = 10  # points of the front, near which it is predicted
_CLEARLY = 0.2  # in scores
_LEVELS = 5  # of a parameter in a sweep


def front_of(y: FloatArray) -> FloatArray:
    """Return the points (f, m) of (n, m) that no other dominates, each once; of many some that represent them."""
    front = np.unique(y[beaten_by(y) == 0], axis=0)
    most = _MOST_POINTS.get(y.shape[1], _FEWEST_POINTS)
    return front if len(front) <= most else front[spread(list(map(tuple, front.tolist())), most)]


def reference_of(front: FloatArray) -> FloatArray:
    """Return the reference point (m,) of a front (f, m) of scores."""
    reach = np.ptp(front, axis=0)
    return np.asarray(front.max(axis=0) + _MARGIN * np.where(reach > _SAME, reach, 1.0))


def swept(rows: FloatArray, encoding: Encoding) -> FloatArray:
    """Return rows that differ from some rows (r, d) in one parameter each, which has all of its range there."""
    d = encoding.count
    units = np.tile(np.linspace(0.0, 1.0, _LEVELS), len(rows) * d)
    at = np.tile(np.repeat(np.arange(d), _LEVELS), len(rows))
    found = np.repeat(rows, d * _LEVELS, axis=0)
    every = np.arange(len(found))
    found[every, at] = encoding.from_units(np.repeat(units[:, None], d, axis=1))[every, at]
    return encoding.settle(found)


def boxes_of(front: FloatArray, reference: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper bounds (k, m) of disjoint boxes that fill the region below the reference and the front.

    Each point, in the order of the last objective, cuts its part out of the boxes, along that objective first, so that
    the boxes before it are final. With three objectives the others form a staircase of strips, and those below the
    point's step are joined; so there are at most three times as many boxes as points.
    """
    m = len(reference)
    low, high = np.full((1, m), -np.inf), reference[None]
    for point in front[np.argsort(front[:, -1], kind="stable")]:
        hit = np.all(point < high, axis=1)
        a, b = low[hit].copy(), high[hit]
        lows, highs = [low[~hit]], [high[~hit]]
        for j in (m - 1, *range(m - 1)):
            apart = a[:, j] < point[j]
            before, below = a[apart].copy(), b[apart].copy()
            below[:, j] = point[j]
            if j == 1 and m == 3 and len(before):  # noqa: PLR2004 - space
                before, below = before.min(axis=0, keepdims=True), below.max(axis=0, keepdims=True)
            lows.append(before)
            highs.append(below)
            a[:, j] = np.maximum(a[:, j], point[j])
        low, high = np.concatenate(lows), np.concatenate(highs)
    return low, high


def fit_front(history: ModelHistory, encoding: Encoding, layout: ThetaLayout, most: int) -> HypervolumeImprovement:
    """Fit the models of several objectives, with at most so many trials, and return the improvement of their front.

    The reference point lies beyond the front that the models predict. With one beyond the known front, a search that
    has found one end of it would never leave it. Models err, so a predicted point has to be nondominated clearly: in
    each objective by a deviation and `_CLEARLY`.
    """
    scores = np.column_stack([fit_transform(y)(y) for y in history.objectives.T])
    kept = subset(history.measured, history.values, most)
    columns = encoding.columns(history.measured[kept])
    models = fit_each(columns, scores[kept].T, history.values[kept], layout)
    usable = np.flatnonzero(history.feasible) if np.any(history.feasible) else np.arange(len(scores))
    best = usable[(history.values if len(usable) == len(scores) else beaten_by(scores[usable])) == 0]
    front = front_of(scores[best])
    probed = encoding.columns(swept(history.measured[best[:_SWEPT]], encoding))
    probes = [model.predict(probed) for model in models]
    cautious = np.column_stack([mean + np.sqrt(variance) + _CLEARLY for mean, variance in probes])
    reference = reference_of(front_of(np.concatenate([front, cautious])))
    return HypervolumeImprovement(tuple(models), front, reference, np.zeros(len(models)))


@dataclass(frozen=True)
class HypervolumeImprovement(Acquisition):
    """The acquisition whose gain is the growth of a front's hypervolume.

    Attributes:
        models: One for each objective's scores, at the same columns.
        front: The scores (f, m) to improve on.
        reference: The point (m,) from which the hypervolume is measured.
        noises: Variance (m,) of the noise of scores; 0 if they are taken for exact.
    """

    models: tuple[GaussianModel, ...]
    front: FloatArray
    reference: FloatArray
    noises: FloatArray

    @property
    @override
    def thetas(self) -> FloatArray:
        return np.stack([model.theta for model in self.models])

    @override
    def of_means(self) -> Self:
        noises = np.array([model.noise for model in self.models])
        noises = np.where(noises < NOISY, 0.0, noises)
        kept = self._feasible(self.models[0].x)
        if not np.any(noises) or not np.any(kept):
            return self
        means = [model.means if noise else model.y for model, noise in zip(self.models, noises, strict=True)]
        front = front_of(np.column_stack(means)[kept])
        return replace(self, front=front, noises=noises)

    @override
    def _reaching(self, x: FloatArray, feasible: BoolArray) -> Self:
        reached = np.column_stack([model.predict(x)[0] for model in self.models])[feasible]
        models = tuple(model.believing(x) for model in self.models)
        return replace(self, models=models, front=front_of(np.concatenate([self.front, reached])))

    @cached_property
    def _bounds(self) -> list[tuple[FloatArray, IntArray, IntArray]]:
        """For each objective the distinct finite bounds (p,) of boxes, and of each box (k,) the numbers of its two.

        The number of an infinite bound is -1.
        """
        found = []
        for a, b in zip(*(bounds.T for bounds in boxes_of(self.front, self.reference)), strict=True):
            bounds = np.unique(b)
            found.append((bounds, np.where(np.isinf(a), -1, np.searchsorted(bounds, a)), np.searchsorted(bounds, b)))
        return found

    @override
    def gain(self, x: FloatArray) -> FloatArray:
        predicted = [model.predict(x) for model in self.models]
        total: FloatArray = np.ones((len(x), 1))
        for u, deviation, a, b in self._standardized(predicted):
            improvements = np.zeros((len(x), u.shape[1] + 1))  # the last one of an infinite bound
            improvements[:, :-1] = deviation * (np.exp(-0.5 * u * u) / _ROOT_TWO_PI + u * ndtr(u))
            total = total * (improvements[:, b] - improvements[:, a])
        sums = np.sum(total, axis=1)
        if np.any(sums > _LEAST):
            return np.asarray(np.log(np.maximum(sums, _LEAST)))
        logs: FloatArray = np.zeros((len(x), 1))
        for u, deviation, a, b in self._standardized(predicted):
            logs = logs + _log_difference(log_h(u)[0] + np.log(deviation), a, b)[0]
        return _log_sum(logs)[0]

    def _standardized(
        self, predicted: Sequence[tuple[FloatArray, ...]]
    ) -> Iterator[tuple[FloatArray, FloatArray, IntArray, IntArray]]:
        """Yield for each objective u (q, p) of its bounds, deviations (q, 1), and the numbers of the boxes' bounds."""
        for (mean, variance, *_), noise, (bounds, a, b) in zip(predicted, self.noises, self._bounds, strict=True):
            deviation = (variance / np.sqrt(variance + noise))[:, None]
            yield (bounds - mean[:, None]) / deviation, deviation, a, b

    @override
    def gain_with_slopes(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        predicted = [model.predict_with_slopes(x) for model in self.models]
        total: FloatArray = np.zeros((len(x), 1))
        parts = []
        for u, deviation, a, b in self._standardized(predicted):
            values, slope = log_h(u)
            logs, ratio = _log_difference(values + np.log(deviation), a, b)
            total = total + logs
            of_mean = _slope_difference(-slope / deviation, ratio, a, b)
            of_deviation = _slope_difference((1.0 - u * slope) / deviation, ratio, a, b)
            parts.append((of_mean, of_deviation))
        sums, shares = _log_sum(total)
        slopes = np.zeros_like(x)
        for (of_mean, of_deviation), (_, variance, by_mean, by_variance), noise in zip(
            parts, predicted, self.noises, strict=True
        ):
            by_deviation = by_variance * ((0.5 * variance + noise) / (variance + noise) ** 1.5)[:, None]
            slopes += np.sum(shares * of_mean, axis=1)[:, None] * by_mean
            slopes += np.sum(shares * of_deviation, axis=1)[:, None] * by_deviation
        return sums, slopes


def _log_sum(logs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the logs (q,) of the sums of exponentials of (q, k), and the share of each (q, k)."""
    most = logs.max(axis=1, keepdims=True)
    parts = np.exp(logs - most)
    total = parts.sum(axis=1, keepdims=True)
    return (most + np.log(total))[:, 0], parts / total


def _log_difference(logs: FloatArray, a: IntArray, b: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return for logs (q, p) of improvements on bounds the logs (q, k) of their differences, and their ratios."""
    apart = np.where(a < 0, -np.inf, np.minimum(logs[:, a] - logs[:, b], -_SAME))
    return logs[:, b] + np.log(-np.expm1(apart)), np.exp(apart)


def _slope_difference(slopes: FloatArray, ratio: FloatArray, a: IntArray, b: IntArray) -> FloatArray:
    """Return the derivatives (q, k) of the logs of differences, for those (q, p) of the logs."""
    return (slopes[:, b] - ratio * slopes[:, a]) / (1.0 - ratio)
