"""Transfer from earlier experiments: a guess at the scores of this one, used while its trials support it.

Notation: n trials of this experiment with values v_i and scores y_i = t(v_i), where t is a transform; g_s the mean of
a model of source s alone, with values shifted and scaled so that its predictions at the x_i have the mean and the
deviation of the v_i, and then transformed by t; r_s the correlation of g_s(x_i) and y_i. The guess is

    g(x) = a sum_s p_s g_s(x),  p_s in proportion to (1 - r_s^2)^(-n / 2) where r_s > 0, else 0.

The shares p_s add up to 1, and a, from 0 to 1, is found by least squares. A share is the probability of the trials if
this source explains them, so that a fitting source is not diluted by others. A Gaussian process of this experiment
models the residual of y.

The evidence, the probability of the v_i under the best hyperparameters, decides whether there is a guess: it has to be
larger with a guess than without. A task of the same shape leaves a simple residual, so three trials suffice; a source
that disagrees leaves a larger one, and without a guess the model is the same as without sources. t is the usual
transform or none, whichever leaves less: the difference of two bowls is a plane, that of their logarithms is not.

Source: [Feurer2018] Practical Transfer Learning for Bayesian Optimization, arXiv:1802.02219: one model for each task,
standardized by itself and weighted by how well it predicts the trials of the new one. Differs from it: the model of
this experiment is not one more of the weighted ones, but is fitted to the residual of the others, as a prior mean is in
[Golovin2017] Google Vizier, section 3.3; weights are closed forms and not shares of bootstrap samples, and evidence
guards against dilution: [Rasmussen2006] Gaussian Processes for Machine Learning, section 5.2.

For searches without such a model `agreement` measures how well a source ranks the trials, by Kendall's tau.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from suggestion_services.gp.likelihood import ThetaLayout
from suggestion_services.gp.model import GaussianModel, fit
from suggestion_services.gp.optimize import FloatArray
from suggestion_services.gp.warping import OutcomeTransform

LEAST_TRIALS = 4
"""Minimum number of trials of a source, and of trials with ranks."""
LEAST_OWN = 3
"""Minimum number of this experiment's trials to assess a source."""
_MOST_OWN, _MOST_PER_PARAMETER = 10, 2  # after these it has learned all of a source, or is misled
_LEAST_EVIDENCE = 3.0
"""Minimum gain of a guess, in nats: twenty times more probable."""
_CERTAINTY = 1.5
"""Deviations of chance that ranks have to agree above. With one, a source is trusted by chance every sixth time."""
_LEAST_SCALE = 0.03
"""Minimum residual of a guess, in deviations of the scores: a few exact predictions do not prove a perfect guess."""
_NO_SPREAD = 1e-9


@dataclass(frozen=True)
class SourceModel:
    """The knowledge of an earlier experiment.

    Attributes:
        model: Model of its scores alone, at columns (m, c).
        values: Values at the same columns, shape (m,), lower is better.
    """

    model: GaussianModel
    values: FloatArray

    def seen_from(self, x: FloatArray, transform: OutcomeTransform) -> GaussianModel | None:
        """Return its model of this experiment's scores, given the columns (n, c) of trials; None if it has none."""
        standard = _standardized(self.values)
        expected = self.model.with_scores(standard).predict(x)[0]
        level, scale = float(np.mean(expected)), float(np.std(expected))
        if not scale > _NO_SPREAD:
            return None
        scores = transform(transform.center + transform.scale * (standard - level) / scale)
        return self.model.with_scores(scores - np.mean(scores)) if np.all(np.isfinite(scores)) else None


@dataclass(frozen=True)
class GuidedModel:
    """The model of an experiment with sources; has the interface of `GaussianModel`.

    Attributes:
        rest: Model of the residual, less `level` and divided by `scale`.
        level: Its mean.
        scale: Its unit.
        sources: Models of the sources with a weight, with the weight.
    """

    rest: GaussianModel
    level: float
    scale: float
    sources: Sequence[tuple[float, GaussianModel]]

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

    def believing(self, x: FloatArray) -> GuidedModel:
        """Return the model conditioned on its own means at columns (m, c)."""
        return replace(self, rest=self.rest.believing(x))


Posterior = GaussianModel | GuidedModel


@dataclass(frozen=True)
class TransferModels:
    """The models of an experiment with sources.

    Attributes:
        own: The model of it alone.
        guided: The model of it and its sources; None if they are uninformative.
        transform: The transform of its scores.
        weights: Weight of each source in the guess, (s,); their sum is at most 1, and 0 without a guess.
    """

    own: GaussianModel
    guided: GuidedModel | None
    transform: OutcomeTransform
    weights: Sequence[float]


@dataclass(frozen=True)
class _Guess:
    """A guess at scores.

    Attributes:
        transform: The transform of the scores.
        rest: Their residual, shape (n,).
        weights: Weights of all sources, shape (s,).
        sources: Models of the sources with a weight, with the weight.
        log_slopes: Log derivatives of the transform, summed over the trials.
    """

    transform: OutcomeTransform
    rest: FloatArray
    weights: Sequence[float]
    sources: Sequence[tuple[float, GaussianModel]]
    log_slopes: float

    @property
    def scale(self) -> float:
        """The unit of the residual."""
        return max(float(np.std(self.rest)), _LEAST_SCALE)

    @property
    def simple_evidence(self) -> float:
        """Log probability of the values, in nats up to a constant, if the residual is noise."""
        return self.log_slopes - len(self.rest) * math.log(self.scale)


def most_own(parameters: int) -> int:
    """Return the number of an experiment's trials up to which its sources count."""
    return max(_MOST_OWN, _MOST_PER_PARAMETER * parameters)


def fit_guided(
    x: FloatArray, values: FloatArray, transform: OutcomeTransform, layout: ThetaLayout, sources: Sequence[SourceModel]
) -> TransferModels:
    """Fit the models of columns (n, c) with these values (n,), given the transform to scores."""
    scores = transform(values)
    own = fit(x, scores, layout)
    alone = TransferModels(own, None, transform, [0.0] * len(sources))
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
    return TransferModels(own, GuidedModel(rest, level, best.scale, best.sources), best.transform, best.weights)


def _explain(
    x: FloatArray, values: FloatArray, transform: OutcomeTransform, sources: Sequence[SourceModel]
) -> _Guess | None:
    """Return the guess at transformed values (n,); None if no source ranks them better than chance."""
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
    return _Guess(
        transform,
        scores - slope * guess,
        (slope * shares).tolist(),
        [(slope * share, model) for share, model in used],
        float(np.sum(transform.log_slopes(values))),
    )


def _standardized(values: FloatArray) -> FloatArray:
    """Return values (n,) with mean 0 and deviation 1; zeros if they are equal."""
    centered, deviation = values - np.mean(values), float(np.std(values))
    least = _NO_SPREAD * float(np.max(np.abs(values)))
    return np.asarray(centered / deviation if deviation > least else np.zeros(len(values)))


def _guess(sources: Sequence[tuple[float, GaussianModel]], x: FloatArray) -> FloatArray:
    """Return the sources' guess at columns (q, c)."""
    return np.asarray(np.sum([weight * model.predict(x)[0] for weight, model in sources], axis=0))


def agreement(guessed: FloatArray, y: FloatArray) -> float:
    """Return the weight, from 0 to 1, of a source that predicts these values (n,) for scores (n,)."""
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
