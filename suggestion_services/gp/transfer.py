"""What earlier experiments say about this one: a guess at its scores, each experiment with the weight that it earns.

Notation: n trials of this experiment with scores y_i; g_s the mean of a model of source s alone, whose scores are
standardized by themselves, so that the scale and the level of another task do not matter; tau_s Kendall's rank
correlation of g_s(x_i) and y_i; w_s the weight of source s. The guess is

    g(x) = sum_s w_s g_s(x) / max(1, sum_s w_s),

and a Gaussian process of this experiment models what the guess leaves of y. So a source that ranks this experiment's
trials by chance has no weight, a good one saves what it knows, and enough trials correct any guess.

The weight is what tau_s is above c, as a share of the most that it can be above it, where c is one and a half times its
standard deviation under independence, sqrt(2 (2n + 5) / (9 n (n - 1))): four trials must agree wholly, later a few
disagreements are forgiven.

Source: [Feurer2018] Practical Transfer Learning for Bayesian Optimization, arXiv:1802.02219: one model for each task,
standardized by itself and weighted by how well it ranks the trials of the new one. Differs from it: the model of this
experiment is not one more of the weighted ones, but is fitted to what the others leave, as a prior mean does in
[Golovin2017] Google Vizier, section 3.3; the weight is a closed form and not a share of bootstrap samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from suggestion_services.gp.likelihood import Layout
from suggestion_services.gp.model import Model, fit
from suggestion_services.gp.optimize import FloatArray

LEAST_TRIALS = 4
"""Trials of this experiment below which nothing can be said about a source."""
_CERTAINTY = 1.5
"""Deviations of chance that agreement has to be above. With one, a source is trusted by chance every sixth time."""
_LEAST_SCALE = 0.1
"""Of what a guess leaves, in deviations of the scores: a few trials that it hits prove no perfect guess."""


@dataclass(frozen=True)
class Guided:
    """The model of an experiment that learns from others; it answers as `Model` does.

    Attributes:
        rest: Model of what the guess leaves, divided by `scale`.
        scale: Its unit.
        sources: Models of the sources that have a weight, with the weight.
    """

    rest: Model
    scale: float
    sources: Sequence[tuple[float, Model]]

    @property
    def theta(self) -> FloatArray:
        """The hyperparameters of this experiment's own part."""
        return self.rest.theta

    def predict(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means and variances (q,) at columns (q, c)."""
        means, variances = self.rest.predict(x)
        return guess(self.sources, x) + self.scale * means, self.scale**2 * variances

    def predict_with_slopes(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return means and variances (q,), and the gradients (q, c) of both."""
        means, variances, by_mean, by_variance = self.rest.predict_with_slopes(x)
        means, by_mean = self.scale * means, self.scale * by_mean
        for weight, model in self.sources:
            mean, _, slopes, _ = model.predict_with_slopes(x)
            means, by_mean = means + weight * mean, by_mean + weight * slopes
        return means, self.scale**2 * variances, by_mean, self.scale**2 * by_variance

    def believing(self, x: FloatArray) -> Guided:
        """Return the model that also believes its own means at columns (m, c)."""
        return replace(self, rest=self.rest.believing(x))


Posterior = Model | Guided


def fit_guided(
    x: FloatArray, y: FloatArray, layout: Layout, models: Sequence[Model], weights: Sequence[float]
) -> Posterior:
    """Return the model of columns (n, c) and scores (n,), given those of the sources with their weights (s,)."""
    sources = [(weight, model) for weight, model in zip(weights, models, strict=True) if weight > 0]
    if not sources:
        return fit(x, y, layout)
    rest = y - guess(sources, x)
    scale = max(float(np.std(rest)), _LEAST_SCALE)
    return Guided(fit(x, rest / scale, layout), scale, sources)


def guess(sources: Sequence[tuple[float, Model]], x: FloatArray) -> FloatArray:
    """Return what the sources say of columns (q, c)."""
    return np.asarray(np.sum([weight * model.predict(x)[0] for weight, model in sources], axis=0))


def weighed(sources: Sequence[Model], x: FloatArray, y: FloatArray) -> list[float]:
    """Return for each source its weight in the guess at scores (n,) of columns (n, c)."""
    weights = [agreement(model.predict(x)[0], y) for model in sources]
    return [weight / max(1.0, sum(weights)) for weight in weights]


def agreement(guessed: FloatArray, y: FloatArray) -> float:
    """Return the weight, from 0 to 1, of a source that guesses these values (n,) of scores (n,)."""
    n = len(y)
    if n < LEAST_TRIALS:
        return 0.0
    chance = _CERTAINTY * math.sqrt(2 * (2 * n + 5) / (9 * n * (n - 1)))
    return max(0.0, (concordance(guessed, y) - chance) / (1.0 - chance))


def concordance(guessed: FloatArray, y: FloatArray) -> float:
    """Return Kendall's rank correlation of values (n,) and scores (n,), n >= 2."""
    first, second = np.triu_indices(len(y), 1)
    return float(np.mean(np.sign(guessed[first] - guessed[second]) * np.sign(y[first] - y[second])))


def learned_words(algorithm: str, weights: Mapping[str, float]) -> str:
    """Return a sentence on the sources that an algorithm learns from, with their weights; empty without any."""
    if not weights:
        return ""
    parts = (f"{name or 'the file'} ({weight:.0%})" for name, weight in weights.items())
    return f"{algorithm} learns from earlier trials of {', '.join(parts)}: by how well they rank the trials of this one"
