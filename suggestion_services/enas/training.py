"""Training of the controller: after each trial, some steps of Adam on architectures that it draws itself.

Notation: a, an architecture; A, its advantage: the reward that the model of rewards (`credit`) predicts for it, in
standard deviations of the rewards and above the baseline, higher is better. A step minimizes

    -A log P(a) - entropy_weight H + skip_weight K

where P is the controller's probability, H the sum of the entropies of its choices on the way to a, and K the mean
divergence of its links from the target share.

Sources: [Pham2018] Efficient Neural Architecture Search via Parameter Sharing; [Williams1992] REINFORCE, Machine
Learning 8; [Kingma2015] Adam, ICLR.

Differs from the paper: the published code trains a child network's shared weights, so that thousands of architectures
can be rewarded in each epoch; here a reward is a whole trial. A model of the rewards takes the place of the shared
weights: the controller draws a fresh architecture in each step, and the model predicts its reward. On pure noise the
model predicts the mean for all, and nothing is learned. The weight of the entropy is in deviations of the reward, not
the paper's 1e-4, and enters with its gradient instead of being added to the reward. The baseline is a moving average of
the newest 100 trials. The number of steps decreases after many trials, so that a restarted service replays them within
a request's time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from suggestion_services.enas.controller import (
    Architecture,
    ControllerShape,
    FloatArray,
    gradient,
    link_probability,
    replay,
    sample,
    softmax,
)
from suggestion_services.enas.credit import Choices, reward_model

_UNDIMINISHED = 50
"""Trials that get all steps; the n-th trial, if later, gets this divided by n of them."""
_WAY = 5.0  # the learning rates of all steps of a search, added up, move scores from equal to their limits
_RATES = 5e-5, 3e-3  # the paper's, and the fastest that stays near uniform on noise
_REMEMBERED = 100  # trials in the model of rewards
_LARGEST = 1e100  # squares of rewards must stay finite
_DECAYS = 0.9, 0.999  # of Adam's two averages
_TINY = 1e-8
_CERTAIN = 1e-6  # a target share of 0 or 1 would make the divergence infinite


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Hyperparameters of the training: the settings of the algorithm.

    Attributes:
        entropy_weight: Weight of the entropy; 0 leaves it out.
        baseline_decay: Above 0, at most 1.
        learning_rate: Of Adam.
        skip_target: Target share of links, between 0 and 1.
        skip_weight: Weight of the divergence from it; 0 leaves it out.
        steps: Of Adam, for each trial.
    """

    entropy_weight: float = 0.1
    baseline_decay: float = 0.999
    learning_rate: float = 1e-3
    skip_target: float = 0.4
    skip_weight: float = 0.8
    steps: int = 50


def learning_rate_for(trials: int, steps: int) -> float:
    """Return the learning rate that suits a budget of this many trials, at least 1, with this many steps for each."""
    undiminished = min(trials, _UNDIMINISHED) + _UNDIMINISHED * math.log(max(trials / _UNDIMINISHED, 1.0))
    least, most = _RATES
    return min(max(_WAY / (steps * undiminished), least), most)


@dataclass(frozen=True, slots=True)
class ControllerState:
    """The controller after some trials. Its arrays are never changed.

    Attributes:
        theta: The weights.
        mean: Adam's average of gradients.
        square: Adam's average of their squares.
        steps: Steps of Adam so far.
        trials: Trials learned from.
        recent: The newest architectures with their rewards.
        worst: The worst reward of a measured trial; NaN if there is none.
    """

    theta: FloatArray
    mean: FloatArray
    square: FloatArray
    steps: int = 0
    trials: int = 0
    recent: tuple[tuple[Architecture, float], ...] = ()
    worst: float = math.nan

    @classmethod
    def nothing(cls, theta: FloatArray) -> ControllerState:
        """Return the controller before the first trial."""
        return cls(theta, np.zeros_like(theta), np.zeros_like(theta))


def learn(
    shape: ControllerShape,
    training: TrainingSettings,
    before: ControllerState,
    architecture: Architecture,
    reward: float,
) -> ControllerState:
    """Return the controller after one more trial.

    Args:
        shape: Dimensions of the controller.
        training: The hyperparameters.
        before: The controller before it.
        architecture: The trial's architecture.
        reward: Its objective, higher is better. NaN for a failed one, which counts as the worst measured before it, and
            is ignored before any was measured.
    """
    worst = before.worst
    if math.isnan(reward):
        if math.isnan(worst):
            return before
        reward = worst
    else:
        reward = min(max(reward, -_LARGEST), _LARGEST)
        worst = reward if math.isnan(worst) else min(worst, reward)
    recent = (*before.recent, (architecture, reward))[-_REMEMBERED:]
    trials = before.trials + 1
    steps = math.ceil(training.steps * min(1.0, _UNDIMINISHED / trials))
    choices, rewards = Choices.of([tried for tried, _ in recent]), np.array([reward for _, reward in recent])
    model = reward_model(choices, rewards)
    ages = np.arange(len(recent) - 1, -1, -1.0)
    baseline = float(np.average(model.predict(choices), weights=training.baseline_decay**ages))
    theta, mean, square = before.theta.copy(), before.mean.copy(), before.square.copy()
    random = Random(trials)
    for step in range(before.steps + 1, before.steps + steps + 1):
        imagined = sample(shape, theta, random)
        advantage = float(model.predict(Choices.of([imagined]))[0]) - baseline
        slope = loss_gradient(shape, training, theta, imagined, advantage)
        _adam(training.learning_rate, step, slope, theta, mean, square)
    return replace(
        before,
        theta=theta,
        mean=mean,
        square=square,
        steps=before.steps + steps,
        trials=trials,
        recent=recent,
        worst=worst,
    )


def loss_gradient(
    shape: ControllerShape, training: TrainingSettings, theta: FloatArray, architecture: Architecture, advantage: float
) -> FloatArray:
    """Return the derivative by theta of a step's loss."""
    passed = replay(shape, theta, architecture)
    # The derivatives of the loss by the scores of operations (L, n), and by those of links (P,).
    target = min(max(training.skip_target, _CERTAIN), 1.0 - _CERTAIN)
    wanted = math.log(target / (1.0 - target))
    p = softmax(passed.scores)
    logs = np.log(np.maximum(p, 1e-300))
    by_scores = training.entropy_weight * p * (logs - np.sum(p * logs, axis=1, keepdims=True)) + advantage * p
    by_scores[np.arange(len(p)), passed.operations] -= advantage
    z = passed.all_link_scores
    q = link_probability(z)
    steep = 2.0 * q * (1.0 - q)  # dq/dz
    # The odds are exp(2 z), so the entropy and the divergence have short derivatives by q.
    by_q = training.entropy_weight * 2.0 * z + training.skip_weight / max(z.size, 1) * (2.0 * z - wanted)
    return gradient(shape, theta, passed, by_scores, advantage * 2.0 * (q - passed.links) + by_q * steep)


def _adam(rate: float, step: int, slope: FloatArray, theta: FloatArray, mean: FloatArray, square: FloatArray) -> None:
    """Move theta by one step, in place; overwrites the slope."""
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
