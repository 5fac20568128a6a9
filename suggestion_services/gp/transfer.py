"""What earlier experiments say about this one: a guess at its scores, which counts while its trials bear it out.

Notation: n trials of this experiment with values v_i and scores y_i = t(v_i), where t is a transform; g_s the mean of
a model of source s alone, whose values are brought to the level and the scale at which those that it expects at the
x_i have the mean and the deviation of the v_i, and then transformed by t; r_s the correlation of g_s(x_i) and y_i. The
guess is

    g(x) = a sum_s p_s g_s(x),  p_s in proportion to (1 - r_s^2)^(-n / 2) where r_s > 0, else 0.

The shares p_s add up to 1, and a, from 0 to 1, is found by least squares. A share is how probable the trials are if
this source explains them, so that one that fits is not diluted by others. A Gaussian process of this experiment models
what the guess leaves of y.

Whether there is a guess at all is decided by the evidence, the probability of the v_i under the best hyperparameters:
with a guess it has to be larger than without. A task of the same shape leaves something simple, so three trials tell;
a source that disagrees leaves more than there was, and without a guess the model is the one that there would be
without sources. t is the usual transform or none, whichever leaves less: the difference of two bowls is a plane, that
of their logarithms is not.

Source: [Feurer2018] Practical Transfer Learning for Bayesian Optimization, arXiv:1802.02219: one model for each task,
standardized by itself and weighted by how well it predicts the trials of the new one. Differs from it: the model of
this experiment is not one more of the weighted ones, but is fitted to what the others leave, as a prior mean does in
[Golovin2017] Google Vizier, section 3.3; weights are closed forms and not shares of bootstrap samples, and evidence is
what guards from dilution: [Rasmussen2006] Gaussian Processes for Machine Learning, section 5.2.

For searches without such a model `agreement` says how well a source ranks the trials, by Kendall's tau.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from suggestion_services.gp.likelihood import Layout
from suggestion_services.gp.model import Model, fit
from suggestion_services.gp.optimize import FloatArray
from suggestion_services.gp.warping import OutcomeTransform

LEAST_TRIALS = 4
"""Trials below which an experiment is no source, and ranks say nothing."""
LEAST_OWN = 3
"""Trials of this experiment that can tell what a source is worth."""
_MOST_OWN, _MOST_PER_PARAMETER = 10, 2  # after these it has learned what there is to learn, or is misled
_LEAST_EVIDENCE = 3.0
"""In nats, that a guess has to gain: twenty times more probable."""
_CERTAINTY = 1.5
"""Deviations of chance that ranks have to agree above. With one, a source is trusted by chance every sixth time."""
_LEAST_SCALE = 0.03
"""Of what a guess leaves, in deviations of the scores: a few trials that it hits prove no perfect guess."""
_NO_SPREAD = 1e-9


@dataclass(frozen=True)
class Source:
    """What an earlier experiment knows.

    Attributes:
        model: Of its scores alone, at columns (m, c).
        values: At the same columns, shape (m,), lower is better.
    """

    model: Model
    values: FloatArray

    def seen_from(self, x: FloatArray, transform: OutcomeTransform) -> Model | None:
        """Return its model of this experiment's scores, given the columns (n, c) of trials; None where it has none."""
        standard = _standardized(self.values)
        expected = self.model.with_scores(standard).predict(x)[0]
        level, scale = float(np.mean(expected)), float(np.std(expected))
        if not scale > _NO_SPREAD:
            return None
        scores = transform(transform.center + transform.scale * (standard - level) / scale)
        return self.model.with_scores(scores - np.mean(scores)) if np.all(np.isfinite(scores)) else None


@dataclass(frozen=True)
class Guided:
    """The model of an experiment that learns from others; it answers as `Model` does.

    Attributes:
        rest: Model of what the guess leaves, less `level` and divided by `scale`.
        level: Its mean.
        scale: Its unit.
        sources: Models of the sources that have a weight, with the weight.
    """

    rest: Model
    level: float
    scale: float
    sources: Sequence[tuple[float, Model]]

    @property
    def theta(self) -> FloatArray:
        """The hyperparameters of this experiment's own part."""
        return self.rest.theta

    def predict(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return means and variances (q,) at columns (q, c)."""
        means, variances = self.rest.predict(x)
        return _guess(self.sources, x) + self.level + self.scale * means, self.scale**2 * variances

    def predict_with_slopes(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return means and variances (q,), and the gradients (q, c) of both."""
        means, variances, by_mean, by_variance = self.rest.predict_with_slopes(x)
        means, by_mean = self.level + self.scale * means, self.scale * by_mean
        for weight, model in self.sources:
            mean, _, slopes, _ = model.predict_with_slopes(x)
            means, by_mean = means + weight * mean, by_mean + weight * slopes
        return means, self.scale**2 * variances, by_mean, self.scale**2 * by_variance

    def believing(self, x: FloatArray) -> Guided:
        """Return the model that also believes its own means at columns (m, c)."""
        return replace(self, rest=self.rest.believing(x))


Posterior = Model | Guided


@dataclass(frozen=True)
class Learned:
    """What an experiment that had sources learned.

    Attributes:
        own: The model of it alone.
        guided: The model of it and its sources; None where they say nothing.
        transform: What makes the scores of that.
        weights: What each source weighs in the guess, (s,); their sum is at most 1, and 0 where there is none.
    """

    own: Model
    guided: Guided | None
    transform: OutcomeTransform
    weights: Sequence[float]


@dataclass(frozen=True)
class _Explained:
    """A guess at scores.

    Attributes:
        transform: What makes them.
        rest: What the guess leaves of them, shape (n,).
        weights: Of all sources, shape (s,).
        sources: Models of those that have a weight, with the weight.
        log_slopes: Of the transform, their sum over the trials.
    """

    transform: OutcomeTransform
    rest: FloatArray
    weights: Sequence[float]
    sources: Sequence[tuple[float, Model]]
    log_slopes: float

    @property
    def scale(self) -> float:
        """The unit of what is left."""
        return max(float(np.std(self.rest)), _LEAST_SCALE)

    @property
    def simple_evidence(self) -> float:
        """How probable the values are, in nats up to a constant, if what is left is noise."""
        return self.log_slopes - len(self.rest) * math.log(self.scale)


def most_own(parameters: int) -> int:
    """Return up to how many trials of an experiment its sources count."""
    return max(_MOST_OWN, _MOST_PER_PARAMETER * parameters)


def fit_guided(
    x: FloatArray, values: FloatArray, transform: OutcomeTransform, layout: Layout, sources: Sequence[Source]
) -> Learned:
    """Return the models of columns (n, c) with these values (n,), given the transform that makes scores of them."""
    scores = transform(values)
    own = fit(x, scores, layout)
    alone = Learned(own, None, transform, [0.0] * len(sources))
    if not sources or not LEAST_OWN <= len(values) <= most_own(layout.n_scales):
        return alone
    straight = replace(transform, power=1.0, mean=0.0, deviation=1.0)
    guesses = [_explain(x, values, each, sources) for each in (straight, transform)]
    best = max((each for each in guesses if each is not None), key=lambda each: each.simple_evidence, default=None)
    log_slopes = float(np.sum(transform.log_slopes(values)))
    if best is None or best.simple_evidence < log_slopes:
        return alone
    level = float(np.mean(best.rest))
    rest = fit(x, (best.rest - level) / best.scale, layout, starts=own.theta[None])
    if best.simple_evidence - rest.loss < log_slopes - own.loss + _LEAST_EVIDENCE:
        return alone
    return Learned(own, Guided(rest, level, best.scale, best.sources), best.transform, best.weights)


def _explain(
    x: FloatArray, values: FloatArray, transform: OutcomeTransform, sources: Sequence[Source]
) -> _Explained | None:
    """Return the guess at values (n,) that are transformed so; None where no source ranks them better than chance."""
    n = len(values)
    models = [source.seen_from(x, transform) for source in sources]
    guessed = np.array([np.zeros(n) if model is None else _standardized(model.predict(x)[0]) for model in models])
    scores = transform(values)
    r = np.clip(guessed @ _standardized(scores) / n, 0.0, 1.0)
    if not np.any(r > 0):
        return None
    shares = np.where(r > 0, (1.0 + _LEAST_SCALE**2 - r * r) ** (-0.5 * n), 0.0)
    shares /= np.sum(shares)
    used = [(share, model) for share, model in zip(shares.tolist(), models, strict=True) if share > 0 and model]
    guess = _guess(used, x)
    centered = guess - np.mean(guess)
    slope = min(max(float(centered @ scores) / float(centered @ centered), 0.0), 1.0)
    return _Explained(
        transform,
        scores - slope * guess,
        (slope * shares).tolist(),
        [(slope * share, model) for share, model in used],
        float(np.sum(transform.log_slopes(values))),
    )


def _standardized(values: FloatArray) -> FloatArray:
    """Return values (n,) with mean 0 and deviation 1; zeros where they are equal."""
    centered, deviation = values - np.mean(values), float(np.std(values))
    least = _NO_SPREAD * float(np.max(np.abs(values)))
    return np.asarray(centered / deviation if deviation > least else np.zeros(len(values)))


def _guess(sources: Sequence[tuple[float, Model]], x: FloatArray) -> FloatArray:
    """Return what the sources say of columns (q, c)."""
    return np.asarray(np.sum([weight * model.predict(x)[0] for weight, model in sources], axis=0))


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
    return f"{algorithm} learns from earlier trials of {', '.join(parts)}: as far as they agree with its own trials"
