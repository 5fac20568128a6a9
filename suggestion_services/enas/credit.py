"""The part of the rewards that the architectures explain; the rest is noise, which must not be learned.

Notation: n trials with D choices each (operations and links); R (n,), their rewards, standardized; K (n, n), the
covariance of rewards, which falls with the share of choices that differ.

The rewards are smoothed by a Gaussian process, that is kernel ridge regression [Rasmussen2006, section 2.3]. Of a few
noise levels, the one that predicts each trial best from the others is used (the leave-one-out residuals of a linear
smoother [Rasmussen2006, section 5.4.2]); if none predicts clearly better than the mean, nothing is explained.
Source: [Rasmussen2006] Gaussian Processes for Machine Learning.
"""

from __future__ import annotations

import math

import numpy as np

from suggestion_services.enas.controller import FloatArray, IntArray

LEAST = 4
"""Minimum number of trials to explain anything."""
_NOISES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # variances, in units of the explained variance
_STEEPNESS = 2.0  # nearly additive: trials that differ in all choices still have exp(-2) of the covariance
_CLEARLY = 1.0  # standard errors of a mean of squares


def explained(choices: IntArray, rewards: FloatArray) -> FloatArray:
    """Return the explained part of the rewards (n,), in their standard deviations; its mean is 0.

    Args:
        choices: Shape (n, D), indices of categories.
        rewards: Shape (n,), finite.
    """
    n = len(rewards)
    deviation = rewards.std()
    if n < LEAST or deviation == 0:
        return np.zeros(n)
    y = (rewards - rewards.mean()) / deviation
    covariance = np.exp(-_STEEPNESS * (choices[:, None, :] != choices[None, :, :]).mean(axis=2))
    covariance -= covariance.mean(axis=0)
    covariance -= covariance.mean(axis=1, keepdims=True)
    usual = np.trace(covariance) / n
    if usual <= 0:  # all equal
        return np.zeros(n)
    values, vectors = np.linalg.eigh(covariance / usual)
    values = np.maximum(values, 0.0)
    along = vectors.T @ y
    least, best = (n / (n - 1)) ** 2 * (1.0 - _CLEARLY * math.sqrt(2.0 / n)), np.zeros(n)
    for noise in _NOISES:
        shares = values / (values + noise)
        smoothed = vectors @ (shares * along)
        leverage = (vectors * vectors) @ shares + 1.0 / n
        error = float(np.mean(((y - smoothed) / (1.0 - leverage)) ** 2))
        if error < least:
            least, best = error, smoothed
    return best
