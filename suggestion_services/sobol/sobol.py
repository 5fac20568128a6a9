"""The algorithm `sobol`: points that fill the space more evenly than random ones.

The k-th suggestion is the k-th point of a scrambled Sobol sequence with one dimension for each parameter, mapped to
values uniformly in probability: every type, step and distribution is respected. It needs no history. The seed scrambles
the sequence, so that two experiments differ and no point lies on a bound.

Sources: [Joe2008] Constructing Sobol Sequences with Better Two-Dimensional Projections, SIAM Journal on Scientific
Computing 30(5), whose direction numbers end at 21,201 dimensions; [Matousek1998] On the L2-Discrepancy for Anchored
Boxes, Journal of Complexity 14(4), for the scrambling. Both as SciPy implements them.
"""

from __future__ import annotations

import numpy as np
from scipy.stats.qmc import Sobol
from typing_extensions import override

from katib.model.space import Point
from suggestion_services.base.algorithm import Problem, StatelessAlgorithm
from suggestion_services.base.rules import SobolRules
from suggestion_services.base.untried import DistinctPoints

_SEQUENCE = -1  # instead of a suggestion's number: the scrambling is common to all of them


class SobolSearch(SobolRules, StatelessAlgorithm):
    """The algorithm `sobol`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._free = [parameter for parameter in problem.space.parameters if parameter.size != 1]
        self._sequence: Sobol | None = None
        self._points = DistinctPoints(problem, self._repeating)

    @override
    def point(self, k: int) -> Point:
        return self._points(k)

    def _repeating(self, k: int) -> Point:
        shares = dict(zip((p.name for p in self._free), self._numbers(k), strict=True))
        return {
            p.name: p.from_unit(shares[p.name]) if p.name in shares else p.at(0) for p in self.problem.space.parameters
        }

    def _numbers(self, k: int) -> list[float]:
        """Return the k-th point of the sequence, in [0, 1)."""
        if not self._free:
            return []
        sequence = self._sequence
        if sequence is None:
            random = np.random.default_rng(self.problem.seed_of(_SEQUENCE))
            sequence = self._sequence = Sobol(len(self._free), scramble=True, seed=random)
        if sequence.num_generated > k:
            sequence.reset()
        if sequence.num_generated < k:
            sequence.fast_forward(k - sequence.num_generated)
        numbers: list[float] = sequence.random(1)[0].tolist()
        return numbers
