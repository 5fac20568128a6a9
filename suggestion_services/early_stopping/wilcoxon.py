"""A paired test against the best trial, for objectives that are means over folds, seeds or problem instances.

Notation: x_s the costs of the judged trial, y_s those of the best one, over the steps s that both have.
Sources: [Wilcoxon1945] Individual Comparisons by Ranking Methods; the use as a stopping rule is that of Optuna's
`WilcoxonPruner`, and of racing: [Lopez2016] The irace package, Operations Research Perspectives 3.

The best trial is, of those that have succeeded, the one with the lowest mean cost: the readings of such a trial are
independent measurements to average, not a falling curve. A trial is stopped when the one-sided signed-rank test of
x_s - y_s has p below `p_threshold` and the mean of x_s is above that of y_s.

NaN policy: a trial with a step that is not a finite number has no mean; it is stopped, and never the best. Of several
readings at one step the last counts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import groupby

from suggestion_services.early_stopping.algorithm import StoppingAlgorithm, StoppingProblem, StoppingVerdict, running
from suggestion_services.early_stopping.curves import CostCurve, CurveState

_EXACT_UP_TO = 25
"""Nonzero differences. The exact distribution takes n^3 steps; beyond this the normal one is as good."""


class Wilcoxon(StoppingAlgorithm):
    """Stops a trial that is significantly worse than the best one over their common steps."""

    def __init__(self, problem: StoppingProblem) -> None:
        super().__init__(problem)
        settings = problem.settings
        self._p_threshold = settings.number("p_threshold", 0.1)
        self._startup = settings.whole("n_startup_steps", 2)

    def judge(self, curves: Sequence[CostCurve]) -> list[StoppingVerdict]:
        """Test every running trial against the best one."""
        succeeded = [c for c in curves if c.standing is CurveState.SUCCEEDED and _failed_step(c) is None]
        best = min(succeeded, key=lambda curve: (_mean(_by_step(curve).values()), curve.trial_name), default=None)
        verdicts = []
        for curve in running(curves):
            if (step := _failed_step(curve)) is not None:
                because = f"has no mean: step {step} is not a finite number"
                verdicts.append(self.verdict(curve, math.nan, because))
            elif best is not None and (found := self._verdict(curve, best.trial_name, _by_step(best))) is not None:
                verdicts.append(found)
        return verdicts

    def _verdict(self, curve: CostCurve, best: str, theirs: dict[int, float]) -> StoppingVerdict | None:
        mine = _by_step(curve)
        shared = mine.keys() & theirs.keys()
        if len(shared) < max(self._startup, 1):
            return None
        own, other = _mean(mine[s] for s in shared), _mean(theirs[s] for s in shared)
        if own <= other:
            return None
        p = p_value([mine[s] - theirs[s] for s in sorted(shared)])
        if p >= self._p_threshold:
            return None
        a, b = self.problem.shown_apart(own, other)
        of = f"the {len(shared)} steps shared with {best}, the best trial"
        return self.verdict(curve, own, f"{a} on average up to {curve.place} is worse than {b} over {of} (p = {p:.2g})")


def _by_step(curve: CostCurve) -> dict[int, float]:
    return dict(zip(curve.resources, curve.costs, strict=True))


def _failed_step(curve: CostCurve) -> int | None:
    """Return the first step without a finite number; None if there is none."""
    return next((step for step, cost in _by_step(curve).items() if math.isnan(cost)), None)


def _mean(costs: Iterable[float]) -> float:
    """Return the mean; infinity if there are no costs."""
    found = list(costs)
    return statistics.fmean(found) if found else math.inf


def p_value(differences: Sequence[float]) -> float:
    """Return the probability of a W+ at least as large, if the differences were symmetric about zero.

    Notation: d_1, ..., d_n the differences; W+ the sum of the ranks of |d_i| over the positive ones.
    Sources: [Wilcoxon1945] Individual Comparisons by Ranking Methods, Biometrics Bulletin 1; [Pratt1959] Remarks on
    Zeros and Ties in the Wilcoxon Signed Rank Procedures, JASA 54: zeros are ranked and then left out. Ties share the
    mean rank.

    Small when the differences tend to be positive; 1 when all are zero. Exact, also with ties, up to 25 nonzero
    differences; beyond that a normal approximation with continuity correction.
    """
    ranked = [(rank, d) for rank, d in _doubled_ranks(differences) if d != 0]
    observed = sum(rank for rank, d in ranked if d > 0)
    ranks = [rank for rank, _ in ranked]
    if not ranks:
        return 1.0
    return _exact(ranks, observed) if len(ranks) <= _EXACT_UP_TO else _normal(ranks, observed)


def _doubled_ranks(differences: Sequence[float]) -> list[tuple[int, float]]:
    """Return twice the rank of each, which is an integer also for ties."""
    found: list[tuple[int, float]] = []
    for _, group in groupby(sorted(differences, key=abs), key=abs):
        tied = list(group)
        first = len(found) + 1
        found += [(2 * first + len(tied) - 1, d) for d in tied]
    return found


def _exact(ranks: Sequence[int], observed: int) -> float:
    """Count the assignments of signs with a sum at least as large, by the possible sums of each prefix."""
    counts = [1] + [0] * sum(ranks)
    reach = 0
    for rank in ranks:
        reach += rank
        for total in range(reach, rank - 1, -1):
            counts[total] += counts[total - rank]
    return sum(counts[observed:]) / float(2 ** len(ranks))


def _normal(ranks: Sequence[int], observed: int) -> float:
    mean = sum(ranks) / 2
    deviation = math.sqrt(sum(rank * rank for rank in ranks)) / 2
    one_rank = 1  # half a rank, doubled
    return 0.5 * math.erfc((observed - one_rank - mean) / deviation / math.sqrt(2))
