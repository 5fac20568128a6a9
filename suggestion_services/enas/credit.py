"""How much of the rewards the architectures explain: what is left is noise, which teaches nothing.

Notation: n trials with D choices each (operations and links); R (n,), their rewards, standardized; K (n, n), the
covariance of rewards, which falls with the share of choices that differ.

The rewards are smoothed by a Gaussian process, which is kernel ridge regression [Rasmussen2006, section 2.3]. Its noise
is the one of a few that predicts each trial best from the others (the leave-one-out residuals of a linear smoother
[Rasmussen2006, section 5.4.2]); where none predicts clearly better than the mean, nothing is explained.
Source: [Rasmussen2006] Gaussian Processes for Machine Learning.
"""

from __future__ import annotations

import math

import numpy as np

from suggestion_services.enas.controller import FloatArray, IntArray

LEAST = 4
"""Trials before which nothing is explained."""
_NOISES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # variances, in units of what choices explain
_STEEPNESS = 2.0  # nearly additive: trials that differ in all choices still have exp(-2) of the covariance
_CLEARLY = 1.0  # standard errors of a mean of squares


def explained(choices: IntArray, rewards: FloatArray) -> FloatArray:
    """Return what the choices explain of the rewards (n,), in their standard deviations; its mean is 0.

    Args:
        choices: Shape (n, D), numbers of categories.
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
    if usual <= 0:  # all alike
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
