"""Earlier trials for searches that have no model of each experiment: their ranks, thinned by what they are worth.

Notation as in `transfer`. The guess at a trial of this experiment is the mean rank of the earlier trials nearest to it.
A source keeps the share w_s of its trials, and as this experiment grows, n trials of its own, 10 / (10 + n) of those;
what goes is spread over the ranks. What stays gets the values that this experiment's own trials have at the same ranks,
so that the level and the scale of another task do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from suggestion_services.base.algorithm import Outcome, PastTrial, Problem
from suggestion_services.gp.encoding import Encoding
from suggestion_services.gp.history import History, Reader
from suggestion_services.gp.optimize import FloatArray
from suggestion_services.gp.transfer import LEAST_TRIALS, agreement

_NEIGHBORS = 3
_HALF = 10  # own trials that count as much as a source that agrees


class EarlierRanks:
    """Reads the earlier trials of one problem."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._encoding = Encoding(problem.space)
        self._readers: dict[str, Reader] = {}

    def values(self, trials: Sequence[PastTrial]) -> Mapping[str, float]:
        """Return the value that an earlier trial counts with, by its name; those that do not count are left out.

        Args:
            trials: All trials; only those that were measured are looked at.
        """
        measured = [trial for trial in trials if trial.outcome is Outcome.MEASURED]
        by_source: dict[str, list[PastTrial]] = {}
        for trial in measured:
            if trial.is_earlier:
                by_source.setdefault(trial.source, []).append(trial)
        if not by_source:
            return {}
        own = self._read("", [trial for trial in measured if not trial.is_earlier])
        sign = -1.0 if self._problem.maximize else 1.0
        found: dict[str, float] = {}
        for source, theirs in by_source.items():
            order = sorted(theirs, key=lambda trial: sign * trial.objective)
            kept = _spread(len(order), self._share(own, self._read(f"of {source}", theirs)))
            levels = _levels(own.values, len(order))
            found.update((order[i].name, sign * float(levels[i])) for i in kept)
        return found

    def _read(self, name: str, trials: Sequence[PastTrial]) -> History:
        reader = self._readers.setdefault(name, Reader(self._problem, self._encoding))
        return reader.read(trials)

    def _share(self, own: History, theirs: History) -> float:
        """Return which share of a source's trials counts."""
        n = len(own.values)
        weight = 1.0
        if n >= LEAST_TRIALS and len(theirs.values) >= LEAST_TRIALS and self._encoding.count:
            x, z = (self._encoding.columns(history.measured) for history in (own, theirs))
            ranks = np.argsort(np.argsort(theirs.values, kind="stable"), kind="stable")
            nearest = np.argsort(np.sum((x[:, None] - z[None]) ** 2, axis=2), axis=1, kind="stable")[:, :_NEIGHBORS]
            weight = agreement(np.mean(ranks[nearest], axis=1), own.values)
        return weight * _HALF / (_HALF + n)


def _levels(values: FloatArray, count: int) -> FloatArray:
    """Return values for so many ranks, best first: those of the experiment's own trials; any, while it has none."""
    places = np.linspace(0.0, 1.0, count)
    return np.asarray(np.quantile(values, places)) if len(values) else places


def _spread(count: int, share: float) -> list[int]:
    """Return which of so many stay, evenly spread; the first one does, if any does."""
    stay = round(count * share)
    return [i * count // stay for i in range(stay)]
