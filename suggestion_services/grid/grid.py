"""Grid search: every combination once, then the end of the search.

Without `random_state` the order is the natural one, the last parameter changing fastest, so that a user can follow it.
With it the order is shuffled, so that a budget smaller than the grid sees all of its regions. Either way the k-th
combination is computed from k: a grid of a billion costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from katib.errors import FieldError
from katib.space import Point
from suggestion_services.base.algorithm import Problem, StatelessAlgorithm
from suggestion_services.grid.permutation import Permutation


class GridSearch(StatelessAlgorithm):
    """The algorithm `grid`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        size = problem.space.size
        assert size is not None, "check() refuses a space without size"
        self._size = size
        shuffled = problem.is_seeded
        self._order = Permutation(size, problem.seed) if shuffled else None

    @classmethod
    @override
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        endless = [p.name for p in problem.space.parameters if p.size is None]
        if endless:
            cause = f"{', '.join(endless)} has no step, so its values cannot be listed"
            return [FieldError("spec.parameters", cause, "give feasibleSpace.step", "grid-step")]
        size, budget = problem.space.size, problem.max_trial_count
        if size is not None and budget is not None and budget > size:
            cause = f"{budget} is more than the {size} combinations of the grid"
            remedy = "lower it, or leave it out to try every combination"
            return [FieldError("spec.maxTrialCount", cause, remedy, "grid-size")]
        return []

    @override
    def point(self, k: int) -> Point | None:
        if k >= self._size:
            return None
        return self.problem.space.at(k if self._order is None else self._order[k])
