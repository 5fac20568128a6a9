"""Earlier trials for searches without a model of each experiment: their ranks, thinned by agreement.

The best trial of each source is tried first. Its others count once the source ranks the trials of this experiment well:
until then, and if it disagrees, the search is the same as without it.

Notation as in `transfer`. The guess at a trial of this experiment is the mean rank of the earlier trials nearest to it.
A source keeps the share w_s of its trials, and as this experiment grows, n trials of its own, 10 / (10 + n) of those;
the removed ones are spread over the ranks. The kept ones get the values of this experiment's own trials at the same
ranks, so that the level and the scale of another task do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from katib.model.space import Point
from suggestion_services.base.algorithm import PastTrial, Problem, TrialOutcome
from suggestion_services.gp.encoding import Encoding
from suggestion_services.gp.history import HistoryReader, ModelHistory
from suggestion_services.gp.transfer import LEAST_TRIALS, agreement

_NEIGHBORS = 3
_HALF = 10  # own trials that count as much as a source that agrees


class EarlierRanks:
    """Converts the earlier trials of one problem.

    Attributes:
        weights: For each source, the agreement of its ranks with this experiment's trials at the last call of `values`.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._encoding = Encoding(problem.space)
        self._readers: dict[str, HistoryReader] = {}
        self.weights: dict[str, float] = {}

    def values(self, trials: Sequence[PastTrial]) -> Mapping[str, float]:
        """Return the substituted values of earlier trials by their names; trials that do not count are left out.

        Args:
            trials: All trials; only the measured ones are used.
        """
        sources, self.weights = self._best_first(trials), {}
        if not sources:
            return {}
        measured = [trial for trial in trials if trial.outcome is TrialOutcome.MEASURED and not trial.is_earlier]
        own, sign = self._read("", measured), -1.0 if self._problem.maximize else 1.0
        found: dict[str, float] = {}
        for source, order in sources.items():
            self.weights[source] = weight = self._weight(own, self._read(f"of {source}", order))
            kept = _spread(len(order), weight * _HALF / (_HALF + len(own.values)))
            levels = np.quantile(own.values, np.linspace(0.0, 1.0, len(order))) if kept else ()
            found.update((order[i].name, sign * float(levels[i])) for i in kept)
        return found

    def best(self, trials: Sequence[PastTrial]) -> list[Point]:
        """Return the best point of each source, of those with most trials first; each point once."""
        sources = sorted(self._best_first(trials).values(), key=lambda order: (-len(order), order[0].source))
        points = (self._problem.space.nearest(order[0].assignments.items()) for order in sources)
        found: list[Point] = []
        for point in points:
            if point is not None and point not in found:
                found.append(point)
        return found

    def _best_first(self, trials: Sequence[PastTrial]) -> dict[str, list[PastTrial]]:
        """Return the measured trials of each source, the best first."""
        sign = -1.0 if self._problem.maximize else 1.0
        found: dict[str, list[PastTrial]] = {}
        measured = [trial for trial in trials if trial.is_earlier and trial.outcome is TrialOutcome.MEASURED]
        for trial in sorted(measured, key=lambda trial: sign * trial.objective):
            found.setdefault(trial.source, []).append(trial)
        return found

    def _read(self, name: str, trials: Sequence[PastTrial]) -> ModelHistory:
        reader = self._readers.setdefault(name, HistoryReader(self._problem, self._encoding))
        return reader.read(trials)

    def _weight(self, own: ModelHistory, theirs: ModelHistory) -> float:
        if len(own.values) < LEAST_TRIALS or len(theirs.values) < LEAST_TRIALS or not self._encoding.count:
            return 0.0
        x, z = (self._encoding.columns(history.measured) for history in (own, theirs))
        ranks = np.argsort(np.argsort(theirs.values, kind="stable"), kind="stable")
        nearest = np.argsort(np.sum((x[:, None] - z[None]) ** 2, axis=2), axis=1, kind="stable")[:, :_NEIGHBORS]
        return agreement(np.mean(ranks[nearest], axis=1), own.values)


def _spread(count: int, share: float) -> list[int]:
    """Return the indices that remain, evenly spread; the first one does, if any does."""
    stay = round(count * share)
    return [i * count // stay for i in range(stay)]
