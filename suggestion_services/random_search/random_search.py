"""Random search: every parameter drawn from its own distribution, independently of all trials.

The k-th point depends on the seed and k alone, so it needs no history, is the same after a restart, and two concurrent
requests never get the same draw. In a small space no point is repeated before all have come.
"""

from __future__ import annotations

from typing_extensions import override

from katib.model.space import Point
from suggestion_services.base.algorithm import Problem, StatelessAlgorithm
from suggestion_services.base.untried import DistinctPoints


class RandomSearch(StatelessAlgorithm):
    """The algorithm `random`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._points = DistinctPoints(problem, lambda k: problem.space.sample(problem.random(k)))

    @override
    def point(self, k: int) -> Point:
        return self._points(k)
