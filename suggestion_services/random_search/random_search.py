"""Random search: every parameter drawn from its own distribution, independently of all trials.

The k-th point depends on the seed and k alone. So it needs no history, is the same after a restart, and two concurrent
requests never get the same draw.
"""

from __future__ import annotations

from typing_extensions import override

from katib.model.space import Point
from suggestion_services.base.algorithm import StatelessAlgorithm


class RandomSearch(StatelessAlgorithm):
    """The algorithm `random`."""

    @override
    def point(self, k: int) -> Point:
        return self.problem.space.sample(self.problem.random(k))
