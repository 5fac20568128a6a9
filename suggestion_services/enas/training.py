"""How the controller learns: one trial after the other, each by some steps of Adam on the architecture that it tried.

Notation: a, an architecture; R, its reward, higher is better; b, the baseline. A step minimizes

    (b - R) log P(a) - entropy_weight H + skip_weight K

where P is the controller's probability, H the sum of the entropies of its choices on the way to a, and K the mean
divergence of its links from the share that is wanted.

Sources: [Pham2018] Efficient Neural Architecture Search via Parameter Sharing; [Williams1992] REINFORCE, Machine
Learning 8; [Kingma2015] Adam, ICLR.

Differs from the paper: an architecture is learned from when its trial has ended, perhaps after others have changed the
weights. The baseline is a moving average that is corrected for its start, as Adam's are, so that the first trials are
not all better than zero. The entropy enters with its gradient in place of being added to the reward. The number of
steps decreases after many trials, so that a restarted service has replayed them within a request's time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from suggestion_services.enas.controller import (
    Architecture,
    FloatArray,
    Pass,
    Shape,
    gradient,
    link_probability,
    replay,
    softmax,
)

_UNDIMINISHED = 50
"""Trials that get all steps; the n-th one after them gets this divided by n of them."""
_DECAYS = 0.9, 0.999  # of Adam's two averages
_TINY = 1e-8
_CERTAIN = 1e-6  # a wanted share of 0 or 1 would make the divergence infinite


@dataclass(frozen=True, slots=True)
class Training:
    """How to learn; the settings of the algorithm.

    Attributes:
        entropy_weight: Of the entropy; 0 leaves it out.
        baseline_decay: Above 0, at most 1.
        learning_rate: Of Adam.
        skip_target: Wanted share of links, between 0 and 1.
        skip_weight: Of the divergence from it; 0 leaves it out.
        steps: Of Adam, for each trial.
    """

    entropy_weight: float = 1e-5
    baseline_decay: float = 0.999
    learning_rate: float = 5e-5
    skip_target: float = 0.4
    skip_weight: float = 0.8
    steps: int = 50


@dataclass(frozen=True, slots=True)
class Learned:
    """The controller after some trials. Its arrays are never changed.

    Attributes:
        theta: The weights.
        mean: Adam's average of gradients.
        square: Adam's average of their squares.
        steps: Steps of Adam so far.
        trials: Trials learned from.
        baseline_sum: Decayed sum of rewards.
        baseline_weight: Decayed sum of ones.
        worst: The worst reward of a trial that was measured; NaN while there is none.
    """

    theta: FloatArray
    mean: FloatArray
    square: FloatArray
    steps: int = 0
    trials: int = 0
    baseline_sum: float = 0.0
    baseline_weight: float = 0.0
    worst: float = math.nan

    @classmethod
    def nothing(cls, theta: FloatArray) -> Learned:
        """Return the controller before the first trial."""
        return cls(theta, np.zeros_like(theta), np.zeros_like(theta))


def learn(shape: Shape, training: Training, before: Learned, architecture: Architecture, reward: float) -> Learned:
    """Return the controller after one more trial.

    Args:
        shape: Of the controller.
        training: How to learn.
        before: The controller before it.
        architecture: What the trial tried.
        reward: Its objective, higher is better. NaN for a failed one, which counts as the worst measured before it, and
            teaches nothing before any was measured.
    """
    worst = before.worst
    if math.isnan(reward):
        if math.isnan(worst):
            return before
        reward = worst
    else:
        worst = reward if math.isnan(worst) else min(worst, reward)
    rate = 1.0 - training.baseline_decay or _TINY  # a decay of 1 is the plain mean
    total = training.baseline_decay * before.baseline_sum + rate * reward
    weight = training.baseline_decay * before.baseline_weight + rate
    advantage = reward - total / weight
    trials = before.trials + 1
    steps = math.ceil(training.steps * min(1.0, _UNDIMINISHED / trials))
    theta, mean, square = before.theta.copy(), before.mean.copy(), before.square.copy()
    for step in range(before.steps + 1, before.steps + steps + 1):
        slope = loss_gradient(shape, training, theta, architecture, advantage)
        _adam(training.learning_rate, step, slope, theta, mean, square)
    return replace(
        before,
        theta=theta,
        mean=mean,
        square=square,
        steps=before.steps + steps,
        trials=trials,
        baseline_sum=total,
        baseline_weight=weight,
        worst=worst,
    )


def loss_gradient(
    shape: Shape, training: Training, theta: FloatArray, architecture: Architecture, advantage: float
) -> FloatArray:
    """Return the derivative by theta of what a step minimizes; the advantage is R - b."""
    passed = replay(shape, theta, architecture)
    return gradient(shape, theta, passed, *_by_scores(training, passed, advantage))


def _by_scores(training: Training, passed: Pass, advantage: float) -> tuple[FloatArray, FloatArray]:
    """Return the derivatives of the loss by the scores of operations (L, n) and by those of links (P,)."""
    target = min(max(training.skip_target, _CERTAIN), 1.0 - _CERTAIN)
    wanted = math.log(target / (1.0 - target))
    p = softmax(passed.scores)
    logs = np.log(np.maximum(p, 1e-300))
    by_scores = training.entropy_weight * p * (logs - np.sum(p * logs, axis=1, keepdims=True)) + advantage * p
    by_scores[np.arange(len(p)), passed.operations] -= advantage
    z = passed.all_link_scores
    q = link_probability(z)
    steep = 2.0 * q * (1.0 - q)  # dq/dz
    # The odds are exp(2 z), so both the entropy and the divergence have a short derivative by q.
    by_q = training.entropy_weight * 2.0 * z + training.skip_weight / max(z.size, 1) * (2.0 * z - wanted)
    return by_scores, advantage * 2.0 * (q - passed.links) + by_q * steep


def _adam(rate: float, step: int, slope: FloatArray, theta: FloatArray, mean: FloatArray, square: FloatArray) -> None:
    """Move theta by one step, in place; the slope is used up."""
    slow, slower = _DECAYS
    mean *= slow
    mean += (1.0 - slow) * slope
    square *= slower
    slope *= slope
    slope *= 1.0 - slower
    square += slope
    np.multiply(square, 1.0 / (1.0 - slower**step), out=slope)
    np.sqrt(slope, out=slope)
    slope += _TINY
    np.divide(mean, slope, out=slope)
    slope *= rate / (1.0 - slow**step)
    theta -= slope
