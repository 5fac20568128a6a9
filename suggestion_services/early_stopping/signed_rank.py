"""Wilcoxon's signed-rank test of paired differences, one-sided.

Notation: d_1, ..., d_n the differences; W+ the sum of the ranks of |d_i| over the positive ones.
Sources: [Wilcoxon1945] Individual Comparisons by Ranking Methods, Biometrics Bulletin 1; [Pratt1959] Remarks on Zeros
and Ties in the Wilcoxon Signed Rank Procedures, JASA 54: zeros are ranked and then left out. Ties share the mean rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

_EXACT_UP_TO = 25
"""Differences other than zero. The exact distribution takes n^3 steps; beyond this the normal one is as good."""


def p_value(differences: Sequence[float]) -> float:
    """Return the probability of a W+ at least as large, if the differences were symmetric about zero.

    Small when the differences tend to be positive; 1 when there is none other than zero. Exact, also with ties, up to
    25 differences other than zero; beyond that a normal approximation with continuity correction.
    """
    ranked = [(rank, d) for rank, d in _doubled_ranks(differences) if d != 0]
    observed = sum(rank for rank, d in ranked if d > 0)
    ranks = [rank for rank, _ in ranked]
    if not ranks:
        return 1.0
    return _exact(ranks, observed) if len(ranks) <= _EXACT_UP_TO else _normal(ranks, observed)


def _doubled_ranks(differences: Sequence[float]) -> list[tuple[int, float]]:
    """Return twice the rank of each, which is a whole number also where ties share one."""
    found: list[tuple[int, float]] = []
    for _, group in groupby(sorted(differences, key=abs), key=abs):
        tied = list(group)
        first = len(found) + 1
        found += [(2 * first + len(tied) - 1, d) for d in tied]
    return found


def _exact(ranks: Sequence[int], observed: int) -> float:
    """Count the assignments of signs with a sum at least as large, by the sums that each prefix can have."""
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
