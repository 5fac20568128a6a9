"""Points of a small space that no trial has had yet, so that no algorithm repeats one while others are left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from katib.model.space import Point, SearchSpace
from suggestion_services.base.algorithm import PastTrial, Problem, TrialOutcome

_ENUMERATED = 2_000  # points up to which a space is small: in a larger one a repetition is rare, or the model's wish
_DRAWS_PER_POINT = 20  # a point that its distribution makes nearly impossible comes after these

Key = frozenset[tuple[str, Any]]


class UntriedPoints:
    """The points of a space that are left to one search.

    Args:
        space: To search. In a large space only points of running trials count as tried.
        trials: All trials so far; earlier ones do not count.
    """

    def __init__(self, space: SearchSpace, trials: Sequence[PastTrial]) -> None:
        self._space = space
        is_small = _is_small(space)
        points = [
            space.nearest(trial.assignments.items())
            for trial in trials
            if not trial.is_earlier and (is_small or trial.outcome is TrialOutcome.PENDING)
        ]
        self._tried = {_key(space, point) for point in points if point is not None}

    def __contains__(self, point: Point) -> bool:
        return _key(self._space, point) not in self._tried

    def take(self, point: Point, random: Random) -> Point:
        """Return the point, or a random untried one in its place if it was tried and the space is small."""
        if point not in self and _is_small(self._space):
            left = [other for i in range(self._space.size or 0) if (other := self._space.at(i)) in self]
            point = random.choice(left) if left else point
        self._tried.add(_key(self._space, point))
        return point


class LeftPoints:
    """A sequence of points without those of fixed trials, and without those that violate the constraints.

    Args:
        sequence: Returns the k-th point; None after the last.
    """

    def __init__(self, problem: Problem, sequence: Callable[[int], Point | None]) -> None:
        self._space, self._sequence = problem.space, sequence
        self._fixed = {_key(problem.space, point) for point in problem.fixed}
        self._found: list[Point] = []
        self._read = 0

    def __call__(self, k: int) -> Point | None:
        """Return the k-th point; None after the last."""
        if not self._fixed and not self._space.constraints:
            return self._sequence(k)
        while len(self._found) <= k:
            point = self._sequence(self._read)
            if point is None:
                return None
            self._read += 1
            if _key(self._space, point) not in self._fixed and self._space.allows(point):
                self._found.append(point)
        return self._found[k]


class DistinctPoints:
    """A sequence of points without its repetitions in a small space; it starts again when all points have come.

    Points that violate the constraints are left out, and in a small space those of fixed trials.
    """

    def __init__(self, problem: Problem, sequence: Callable[[int], Point]) -> None:
        self._space, self._sequence = problem.space, sequence
        self._found: list[Point] = []
        self._fixed = {_key(problem.space, point) for point in problem.fixed if problem.space.allows(point)}
        self._keys = set(self._fixed)
        self._drawn = 0
        self._allowed = LeftPoints(replace(problem, fixed=()), sequence)

    def __call__(self, k: int) -> Point:
        if not _is_small(self._space):
            return self._allowed(k) or self._sequence(k)
        every = self._space.size or 1
        size = every - len(self._fixed) or every
        while len(self._found) < size and len(self._found) <= k % size:
            self._add(self._sequence(self._drawn))
            self._drawn += 1
            if self._drawn > _DRAWS_PER_POINT * every:
                for i in range(every):
                    self._add(self._space.at(i))
        return self._found[k % size]

    def _add(self, point: Point) -> None:
        key = _key(self._space, point)
        if key not in self._keys and self._space.allows(point):
            self._keys.add(key)
            self._found.append(point)


def _is_small(space: SearchSpace) -> bool:
    return space.size is not None and space.size <= _ENUMERATED


def _key(space: SearchSpace, point: Point) -> Key:
    return frozenset(space.active(point).items())
