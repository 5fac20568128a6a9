"""The Pareto set of an experiment with several objectives, kept current trial by trial.

Law: the result does not depend on the order in which trials are added, so a restart changes nothing. A new trial is
compared with the set alone; only the removal of a member compares all trials again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from katib.model.pareto import REFERENCE_TRIALS, Point, dominates, front, hypervolume, reference_point, spread

SHOWN_TRIALS = 20
"""Maximum number of the set's trials that an Experiment names, enough for a person to read. Their number is exact."""

_DIGITS = 9
"""Significant digits: sums in another order differ beyond, which must not rewrite an Experiment."""


@dataclass(frozen=True, slots=True)
class ParetoSummary:
    """Summary of the set.

    Attributes:
        names: Trials that represent the whole set, in the order of the first objective.
        reference: Reference point of the hypervolume, as costs.
    """

    names: tuple[str, ...]
    count: int
    hypervolume: float
    reference: Point
    points: tuple[Point, ...]


class ParetoSet:
    """The set and all candidate trials. Not thread-safe."""

    def __init__(self) -> None:
        self._trials: dict[str, tuple[int, Point]] = {}
        self._by_order: list[tuple[int, str]] = []
        self._members: dict[str, Point] = {}
        self._lost: dict[str, Point] = {}
        self._summary: ParetoSummary | None = None
        self._summarized_of: _Basis | None = None

    def add(self, name: str, order: int, point: Point) -> None:
        """Add a measured trial that satisfies the constraints."""
        self._trials[name] = (order, point)
        insort(self._by_order, (order, name))
        if self._lost.get(name) == point:
            del self._lost[name]
        if any(dominates(member, point) for member in self._members.values()):
            return
        self._members = {other: member for other, member in self._members.items() if not dominates(point, member)}
        self._members[name] = point

    def remove(self, name: str) -> None:
        """Remove a trial; unknown names are ignored."""
        if name not in self._trials:
            return
        order, _ = self._trials.pop(name)
        del self._by_order[bisect_left(self._by_order, (order, name))]
        if name in self._members:
            self._lost[name] = self._members.pop(name)

    def summary(self) -> ParetoSummary | None:
        """Return the summary of the set; None until a trial is measured."""
        if not self._trials:
            return None
        if self._lost:
            names = list(self._trials)
            points = [self._trials[name][1] for name in names]
            self._members = {names[i]: points[i] for i in front(points)}
            self._lost = {}
        first = [self._trials[name][1] for _, name in self._by_order[:REFERENCE_TRIALS]]
        basis = first, {name: (self._trials[name][0], point) for name, point in self._members.items()}
        if self._summary is None or self._summarized_of != basis:
            self._summary, self._summarized_of = _summarized(*basis), basis
        return self._summary


_Basis = tuple[list[Point], dict[str, tuple[int, Point]]]
"""Input of a summary: the costs of the first trials; order and costs of the members."""


def _summarized(first: list[Point], members: dict[str, tuple[int, Point]]) -> ParetoSummary:
    names = sorted(members, key=lambda name: (members[name][1], members[name][0], name))
    points = [members[name][1] for name in names]
    reference = reference_point(first)
    volume = float(f"{hypervolume(points, reference):.{_DIGITS}g}")
    shown = tuple(names[i] for i in spread(points, SHOWN_TRIALS))
    return ParetoSummary(shown, len(names), volume, reference, tuple(points))
