"""The region of a search in many parameters: a box that moves with the best trial, shrinks as it fills, and restarts.

From 15 parameters on the search is restricted to a trust region, as in [Eriksson2019] Scalable Global Optimization via
Local Bayesian Optimization, NeurIPS 32: a box around the best row, its sides in proportion to the length scales.
Differs from the paper: it does not shrink after failures in a row, but with the number of trials inside, whatever their
order. As it fills without a better center it becomes smaller, and a new center has emptier surroundings. The model is
made of the trials nearest to the center, whose values are transformed by themselves. If it finds noise, each suggestion
keeps most of the center's numbers, a random choice, as in [Regis2013] Combining Radial Basis Function Surrogates and
Dynamic Coordinate Search in High-Dimensional Expensive Black-Box Optimization, Engineering Optimization 45(5): a model
that explains little predicts little far from all trials, in the corners of the box.

With one objective, after as many trials in a row without notable improvement as fill a box of each size, the search
restarts: the next trials fill the space, and a box around the best of these follows, with a model of them alone. Each
suggestion carries its number and the number of restarts before it as labels, which come back with the trial. So the
region is a function of the history. Trials without our labels belong to the first region and are older than all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from katib.model.wording import counted
from suggestion_services.base.algorithm import PastTrial, TrialOutcome
from suggestion_services.gp.encoding import Encoding
from suggestion_services.gp.optimize import FloatArray, IntArray

NUMBER_LABEL = "gp.suggestion.katib.kubeflow.org/number"
RESTARTS_LABEL = "gp.suggestion.katib.kubeflow.org/restarts"

_MANY = 15
_LARGEST_SIDE = 0.8
_HALVINGS = 7
_MOST_INSIDE = 20
_NEAREST = 100  # trials in the model; more are slower and, far from the center, misleading
_NOTABLE = 1e-4  # improvement that counts, in units of the median trial's distance to the best
_UNEXPLAINED = 0.1  # noise, as a share of the variance of scores, from which numbers are kept
_CHANGED = 0.25  # share of the numbers that are not kept
_LEAST_RELATIVE, _MOST_RELATIVE = 0.2, 5.0  # sides, in units of their geometric mean
_ENDED = (TrialOutcome.MEASURED, TrialOutcome.BAD)


@dataclass(frozen=True)
class Box:
    """Bounds of the numbers.

    Attributes:
        low: Shape (n,).
        high: Shape (n,).
        side: Geometric mean of its sides before they are cut off at the bounds of the space; 1 if it is the space.
    """

    low: FloatArray
    high: FloatArray
    side: float = 1.0

    def around(self, center: FloatArray, noise: float, random: np.random.Generator) -> Box:
        """Return the box with most numbers kept at the center (d,) if the variance of the noise of scores is large."""
        n = len(self.low)
        if self.side == 1.0 or noise < _UNEXPLAINED:
            return self
        kept = random.permutation(n) >= max(_CHANGED * n, 1.0)
        return replace(self, low=np.where(kept, center[:n], self.low), high=np.where(kept, center[:n], self.high))


def is_restricted(encoding: Encoding) -> bool:
    """Whether a space has enough parameters for a region."""
    return encoding.count >= _MANY and encoding.n_numbers > 0


def trust_region(encoding: Encoding, rows: FloatArray, center: FloatArray, lengths: FloatArray) -> Box:
    """Return the box to search.

    Args:
        encoding: Encoding of the space.
        rows: Known and running rows (n, d).
        center: The best of them, shape (d,).
        lengths: Length scales of the parameters, shape (d,).
    """
    n = encoding.n_numbers
    if not is_restricted(encoding):
        return Box(np.zeros(n), np.ones(n))
    relative = lengths[:n] / np.exp(np.mean(np.log(lengths[:n])))
    relative = np.clip(relative, _LEAST_RELATIVE, _MOST_RELATIVE)
    distances = np.max(np.abs(rows[:, :n] - center[:n]) / relative, axis=1)
    side, most = _LARGEST_SIDE, min(encoding.count, _MOST_INSIDE)
    for _ in range(_HALVINGS):
        if np.count_nonzero(distances <= side / 2) <= most:
            break
        side /= 2
    reach = 0.5 * side * relative
    return Box(np.clip(center[:n] - reach, 0.0, 1.0), np.clip(center[:n] + reach, 0.0, 1.0), side)


def nearest(columns: FloatArray, center: int) -> IntArray:
    """Return the indices of the trials that the model is made of, in their order.

    Args:
        columns: Columns (n, c) of the measured trials.
        center: Index of the best of them.
    """
    distances = np.sum((columns - columns[center]) ** 2, axis=1)
    return np.sort(np.argsort(distances, kind="stable")[:_NEAREST])


def restarts_of(encoding: Encoding, trials: Sequence[PastTrial], *, maximize: bool) -> int:
    """Return the number of restarts before the next suggestion.

    Args:
        encoding: Encoding of the space.
        trials: Of this experiment.
        maximize: Direction of the objective.
    """
    newest = max((trial.number(RESTARTS_LABEL) for trial in trials), default=0)
    ended = [trial for trial in in_region(trials, newest) if trial.outcome in _ENDED]
    ended.sort(key=lambda trial: trial.number(NUMBER_LABEL))
    sign = -1.0 if maximize else 1.0
    losses = np.array([sign * trial.objective if _counts(trial) else np.inf for trial in ended])
    n_older = sum(trial.number(NUMBER_LABEL) < 0 for trial in ended)
    return max(newest, 0) + (_without_progress(losses, n_older) > _patience(encoding))


def _without_progress(losses: FloatArray, n_older: int) -> int:
    """Return the number of losses (n,) after the last notable improvement; the first ones are older, in any order."""
    finite = losses[np.isfinite(losses)]
    if not len(finite):
        return 0
    least = _NOTABLE * float(np.median(finite) - np.min(finite))
    best, since = float(np.min(losses[:n_older], initial=np.inf)), 0
    for loss in losses[n_older:].tolist():
        best, since = (loss, 0) if loss < best - least else (best, since + 1)
    return since


def _counts(trial: PastTrial) -> bool:
    return trial.outcome is TrialOutcome.MEASURED and trial.is_feasible


def in_region(trials: Sequence[PastTrial], restarts: int) -> list[PastTrial]:
    """Return the trials after this number of restarts."""
    return [trial for trial in trials if max(trial.number(RESTARTS_LABEL), 0) == max(restarts, 0)]


def labels_of(k: int, restarts: int) -> Mapping[str, str]:
    """Return the labels of the k-th suggestion."""
    return {NUMBER_LABEL: str(k), RESTARTS_LABEL: str(restarts)}


def region_words(encoding: Encoding, side: float, restarts: int) -> str:
    """Return a sentence on the region of the last suggestion; empty if the whole space was searched."""
    if side == 1.0:
        return ""
    words = f"gp searched a box around the best trial, {100 * side:.2g} % of each range wide on average"
    again = f"; {counted(restarts, 'restart')}, each after {_patience(encoding)} trials without improvement"
    return words + (again if restarts else "")


def _patience(encoding: Encoding) -> int:
    """Return the number of trials in a row without improvement after which the search restarts."""
    return _HALVINGS * min(encoding.count, _MOST_INSIDE)
