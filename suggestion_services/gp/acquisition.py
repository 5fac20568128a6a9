"""The acquisition function: log expected improvement, times the probability of meeting the constraints.

Notation: mean m and deviation s of the model at a point, best the score to improve on, u = (best - m) / s.
EI = s h(u) with h(u) = phi(u) + u Phi(u). Its logarithm has a slope even if the improvement itself underflows, so that
a search from there makes progress. Source: [Ament2023] Unexpected Improvements to Expected Improvement for Bayesian
Optimization, NeurIPS 36, section 4.1: log h in pieces without cancellation. Constraints as in [Gardner2014] Bayesian
Optimization with Inequality Constraints, ICML: one model each, their probabilities multiplied. The cost of a point is
subtracted if requested, see `cost`.

With noise of variance n the best score is a lucky one. So `of_means` improves on the least mean at a trial, and s is
the deviation s^2 / sqrt(s^2 + n) of the mean after one more trial there: a well-known point gains nothing. Source:
[Picheny2013] Quantile-Based Optimization of Noisy Computer Experiments with Tunable Precision, Technometrics 55(1), at
the quantile 1/2. It trusts the model, which may take a narrow valley for noise; the best score as a goal does not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr
from typing_extensions import override

from suggestion_services.gp.beliefs import BeliefTerm
from suggestion_services.gp.cost import Cost
from suggestion_services.gp.model import GaussianModel
from suggestion_services.gp.optimize import BoolArray, FloatArray
from suggestion_services.gp.transfer import GuidedModel, Posterior

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_HALF_LOG_HALF_PI = 0.5 * math.log(0.5 * math.pi)
_SAME = 1e-12  # squared distances below it are rounding errors
_CAUTION = 2.0  # power of the probability of a constraint; with 1, two of three trials at a bound break it
NOISY = 0.01  # variance of noise from which it is the problem's; below, it is what the kernel cannot express
_CROWD = 4  # running trials that may be close to each other; further ones are moved away
_NEAR, _FAR = -1.0, -1e3  # between them the middle piece, below _FAR its limit


def log_h(u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return log h(u) and its derivative, elementwise."""
    near = np.maximum(u, _NEAR)
    values = np.log(np.exp(-0.5 * near * near - _HALF_LOG_TWO_PI) + near * ndtr(near))
    low = u < _NEAR
    if np.any(low):
        x = u[low]
        middle = np.maximum(x, _FAR)
        inner = np.log(erfcx(middle / -math.sqrt(2.0)) * -middle) + _HALF_LOG_HALF_PI
        tail = np.where(x > _FAR, np.log(-np.expm1(inner)), -2.0 * np.log(-x))
        values[low] = -0.5 * x * x - _HALF_LOG_TWO_PI + tail
    slopes = np.exp(log_ndtr(np.maximum(u, _FAR)) - np.where(u > _FAR, values, 0.0))
    return values, np.where(u > _FAR, slopes, -u - 2.0 / np.minimum(u, -1.0))  # far out the difference has no digits


@dataclass(frozen=True)
class CrowdingPenalty:
    """The log of the penalty around crowded running trials: 0 far from them, lower near them.

    As local penalization in [Gonzalez2016] Batch Bayesian Optimization via Local Penalization, AISTATS, but with a
    reach in length scales: theirs, a distance to the optimum, is zero if trials are believed to reach it.

    Attributes:
        at: Columns (m, c).
        reach: For each column (c,).
    """

    at: FloatArray
    reach: FloatArray

    @classmethod
    def of(cls, x: FloatArray, reach: FloatArray) -> CrowdingPenalty | None:
        """Return those of the running trials (m, c) that are crowded; None if there are none."""
        apart = np.sum(((x[:, None, :] - x) / reach) ** 2, axis=2)
        crowded = np.count_nonzero(apart < 1.0, axis=1) >= _CROWD
        return cls(x[crowded], reach) if np.any(crowded) else None

    def __call__(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the logs (q,) at columns (q, c), and their gradients (q, c)."""
        apart = (x[:, None, :] - self.at) / self.reach
        squares = np.maximum(np.sum(apart * apart, axis=2), _SAME)
        inside, left = np.exp(-0.5 * squares), -np.expm1(-0.5 * squares)
        return np.sum(np.log(left), axis=1), np.einsum("qm,qmc->qc", inside / left, apart) / self.reach


@dataclass(frozen=True, kw_only=True)
class Acquisition(ABC):
    """The acquisition values of points, higher is better: the log gain of a point, and terms that weigh it.

    Attributes:
        constraints: Models of the constraints, below 0 if met.
        caution: Power of their probabilities.
        cost: The log cost of points; None if it does not count.
        crowded: Running trials with a penalty around them; None if there are none.
        beliefs: Priors of the user; None if there are none.
    """

    constraints: Sequence[GaussianModel] = ()
    caution: float = _CAUTION
    cost: Cost | None = None
    crowded: CrowdingPenalty | None = None
    beliefs: BeliefTerm | None = None

    @property
    @abstractmethod
    def thetas(self) -> FloatArray:
        """Hyperparameters (o, t) of the models of the objectives."""

    @abstractmethod
    def of_means(self) -> Self:
        """Return the acquisition that improves on means at feasible trials; the same without noise."""

    @abstractmethod
    def gain(self, x: FloatArray) -> FloatArray:
        """Return the logs (q,) of the expected gain at columns (q, c)."""

    @abstractmethod
    def gain_with_slopes(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the logs (q,) of the gain and their gradients (q, c)."""

    @abstractmethod
    def _reaching(self, x: FloatArray, feasible: BoolArray) -> Self:
        """Return the acquisition if trials at columns (m, c) end as the objectives' models predict.

        Args:
            x: The columns.
            feasible: Whether their values have to be improved on, (m,).
        """

    def believing(self, x: FloatArray, reach: FloatArray) -> Self:
        """Return the acquisition if trials at columns (m, c) end as the models predict; see `Model.believing`.

        Their predicted values also have to be improved on: otherwise the next point would be beside the last. Without
        noise that is not enough: all remaining gain lies close to the best trial. So there is a penalty around running
        trials of which several are within reach (c,) of each other.
        """
        if not len(x):
            return self
        constraints = [model.believing(x) for model in self.constraints]
        crowded = CrowdingPenalty.of(x, reach)
        return replace(self._reaching(x, self._feasible(x)), constraints=constraints, crowded=crowded)

    def _feasible(self, x: FloatArray) -> BoolArray:
        """Return whether the constraints are expected to be met, (q,) at columns (q, c)."""
        kept = [model.predict(x)[0] < 0 for model in self.constraints]
        return np.all(kept, axis=0) if kept else np.ones(len(x), dtype=bool)

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return the values (q,) of columns (q, c)."""
        total = self.gain(x)
        for model in self.constraints:
            mean, variance = model.predict(x)
            total += self.caution * log_ndtr(-mean / np.sqrt(variance))
        if self.cost is not None:
            total -= self.cost(x)
        return total + sum(term(x)[0] for term in (self.crowded, self.beliefs) if term is not None)

    def with_slopes(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the values (q,) and their gradients (q, c) by the columns."""
        total, slopes = self.gain_with_slopes(x)
        for model in self.constraints:
            u, _, by_u, _ = _standardized(model, x, 0.0, 0.0)
            values = self.caution * log_ndtr(u)
            total += values
            slopes += self.caution * np.exp(-0.5 * u * u - _HALF_LOG_TWO_PI - values / self.caution)[:, None] * by_u
        if self.cost is not None:
            values, slope = self.cost.with_slopes(x)
            total, slopes = total - values, slopes - slope
        for term in (self.crowded, self.beliefs):
            if term is not None:
                values, slope = term(x)
                total, slopes = total + values, slopes + slope
        return total, slopes


@dataclass(frozen=True)
class ExpectedImprovement(Acquisition):
    """The acquisition whose gain is the improvement on the best score.

    Attributes:
        objective: Model of the scores.
        best: The score to improve on.
        noise: Variance of the noise of scores; 0 if they are taken for exact.
    """

    objective: Posterior
    best: float
    noise: float = 0.0

    @property
    @override
    def thetas(self) -> FloatArray:
        return self.objective.theta[None]

    @override
    def of_means(self) -> Self:
        model = self.objective
        if isinstance(model, GuidedModel) or model.noise < NOISY:
            return self
        means = model.means[self._feasible(model.x)]
        return replace(self, best=float(np.min(means)), noise=model.noise) if len(means) else self

    @override
    def _reaching(self, x: FloatArray, feasible: BoolArray) -> Self:
        reached = self.objective.predict(x)[0][feasible]
        return replace(self, objective=self.objective.believing(x), best=min([self.best, *reached.tolist()]))

    @override
    def gain(self, x: FloatArray) -> FloatArray:
        mean, variance = self.objective.predict(x)
        deviation: FloatArray = np.sqrt(variance) * np.sqrt(variance / (variance + self.noise))
        return log_h((self.best - mean) / deviation)[0] + np.log(deviation)

    @override
    def gain_with_slopes(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        u, deviation, by_u, by_deviation = _standardized(self.objective, x, self.best, self.noise)
        values, slope = log_h(u)
        return values + np.log(deviation), slope[:, None] * by_u + by_deviation / deviation[:, None]


def truncated_mean(mean: FloatArray, deviation: FloatArray, least: float) -> FloatArray:
    """Return the means (q,) of normal distributions cut off below a number."""
    u = (mean - least) / deviation
    expected = mean + deviation * np.exp(-0.5 * u * u - _HALF_LOG_TWO_PI - log_ndtr(u))
    return np.asarray(np.maximum(expected, least))  # far below it the sum has no digits


def _standardized(
    model: Posterior, x: FloatArray, level: float, noise: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return u = (level - mean) / deviation, the deviations (q,), and the gradients (q, c) of both."""
    mean, variance, by_mean, by_variance = model.predict_with_slopes(x)
    share = variance / (variance + noise)
    root, gain = np.sqrt(variance), np.sqrt(share)
    deviation, by_deviation = root * gain, by_variance / (2.0 * root[:, None]) * (gain * (2.0 - share))[:, None]
    u = (level - mean) / deviation
    return u, deviation, -(by_mean + u[:, None] * by_deviation) / deviation[:, None], by_deviation
