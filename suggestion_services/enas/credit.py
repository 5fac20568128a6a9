"""A model of the rewards by the choices of architectures; what it can't explain is noise, which must not be learned.

Notation: n trials with D choices each (operations and links); R (n,), their rewards, standardized; K (n, n), the
covariance of rewards, which falls with the shares of operations and of links that differ.

The model is a Gaussian process, that is kernel ridge regression [Rasmussen2006, section 2.3]. Of a few covariances and
noise levels, those that predict each trial best from the others are used (the leave-one-out residuals of a linear
smoother [Rasmussen2006, section 5.4.2]); if none predicts clearly better than the mean, nothing is explained.
Source: [Rasmussen2006] Gaussian Processes for Machine Learning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from suggestion_services.enas.controller import Architecture, FloatArray, IntArray

LEAST = 4
"""Minimum number of trials to explain anything."""
_NOISES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # variances, in units of the explained variance
_STEEPNESSES = ((2.0, 0.0), (0.0, 2.0), (1.5, 1.5))
# Of operations and links. Nearly additive: trials that differ in all choices still have exp(-2) of the covariance.
_CLEARLY = 1.0  # standard errors of a mean of squares
_NO_VARIANCE = 1e-12


@dataclass(frozen=True, slots=True)
class RewardModel:
    """The rewards that the choices explain.

    Attributes:
        known: The architectures of the trials, as `Choices`.
        weights: Of the covariances with them, shape (n,); all zero if nothing is explained.
        steepness: Of operations and links in the covariance.
        level: Added to each prediction.
    """

    known: Choices
    weights: FloatArray
    steepness: tuple[float, float] = (0.0, 0.0)
    level: float = 0.0

    def predict(self, choices: Choices) -> FloatArray:
        """Return the explained part of the rewards (m,) of m architectures, in standard deviations above the mean."""
        return choices.covariance(self.known, self.steepness) @ self.weights + self.level


@dataclass(frozen=True, slots=True)
class Choices:
    """Architectures as numbers: operations (n, L) and links (n, P)."""

    operations: IntArray
    links: IntArray

    @classmethod
    def of(cls, architectures: Sequence[Architecture]) -> Choices:
        """Return the choices of architectures with the same number of layers."""
        operations = [[layer[0] for layer in architecture] for architecture in architectures]
        links = [[link for layer in architecture for link in layer[1:]] for architecture in architectures]
        return cls(np.array(operations), np.array(links))

    def covariance(self, others: Choices, steepness: tuple[float, float]) -> FloatArray:
        """Return the covariance (n, m) of the rewards with those of others."""
        pairs = zip(steepness, (self.operations, self.links), (others.operations, others.links), strict=True)
        exponent = np.zeros((len(self.operations), len(others.operations)))
        for steep, one, other in pairs:
            if steep and one.shape[1]:
                exponent -= steep * (one[:, None, :] != other[None, :, :]).mean(axis=2)
        return np.exp(exponent)


def reward_model(choices: Choices, rewards: FloatArray) -> RewardModel:
    """Return the model of these rewards (n,), which are finite."""
    n = len(rewards)
    deviation = rewards.std()
    best = RewardModel(choices, np.zeros(n))
    if n < LEAST or deviation == 0:
        return best
    y = (rewards - rewards.mean()) / deviation
    least = (n / (n - 1)) ** 2 * (1.0 - _CLEARLY * math.sqrt(2.0 / n))
    for steepness in _STEEPNESSES:
        covariance = choices.covariance(choices, steepness)
        means = covariance.mean(axis=0)
        covariance = covariance - means - means[:, None] + means.mean()
        usual = np.trace(covariance) / n
        if usual <= _NO_VARIANCE:  # all equal
            continue
        values, vectors = np.linalg.eigh(covariance)
        values = np.maximum(values, 0.0)
        along = vectors.T @ y
        for noise in _NOISES:
            shares = values / (values + noise * usual)
            smoothed = vectors @ (shares * along)
            leverage = (vectors * vectors) @ shares + 1.0 / n
            error = float(np.mean(((y - smoothed) / (1.0 - leverage)) ** 2))
            if error < least:
                weights = vectors @ (along / (values + noise * usual))
                weights -= weights.mean()
                least, best = error, RewardModel(choices, weights, steepness, -float(means @ weights))
    return best
