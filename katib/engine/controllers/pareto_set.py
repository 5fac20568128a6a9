"""The trials of an experiment with several objectives that none beats in everything, kept current trial by trial.

Law: what it says is what it would say of the same trials added in any order, so a restart changes nothing. A new trial
is compared with the set alone; only when a trial of the set goes away are all of them looked at again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from katib.model.pareto import REFERENCE_TRIALS, Point, dominates, front, hypervolume, reference_point, spread

SHOWN_TRIALS = 20
"""How many trials of the set an Experiment names: as many as a person looks at. Their number is exact."""

_DIGITS = 9
"""Sums in another order differ beyond; an Experiment is not rewritten for that."""


@dataclass(frozen=True, slots=True)
class ParetoSummary:
    """What is known of the set.

    Attributes:
        names: Trials that show all of it, in the order of the first objective.
        count: How many trials are in it.
        hypervolume: What they cover together.
        reference: Where that is measured from, as costs.
        points: The costs of all of its trials.
    """

    names: tuple[str, ...]
    count: int
    hypervolume: float
    reference: Point
    points: tuple[Point, ...]


class ParetoSet:
    """The set, and all trials that could be in it. Not thread-safe."""

    def __init__(self) -> None:
        self._trials: dict[str, tuple[int, Point]] = {}
        self._by_order: list[tuple[int, str]] = []
        self._members: dict[str, Point] = {}
        self._lost: dict[str, Point] = {}
        self._summary: ParetoSummary | None = None
        self._summarized_of: _Basis | None = None

    def add(self, name: str, order: int, point: Point) -> None:
        """Take a trial that was measured and satisfies the constraints.

        Args:
            name: Of the trial.
            order: Where it stands among the others, by creation.
            point: Its costs, one for each objective.
        """
        self._trials[name] = (order, point)
        insort(self._by_order, (order, name))
        if self._lost.get(name) == point:
            del self._lost[name]
        if any(dominates(member, point) for member in self._members.values()):
            return
        self._members = {other: member for other, member in self._members.items() if not dominates(point, member)}
        self._members[name] = point

    def remove(self, name: str) -> None:
        """Forget a trial; one that is not known is fine."""
        if name not in self._trials:
            return
        order, _ = self._trials.pop(name)
        del self._by_order[bisect_left(self._by_order, (order, name))]
        if name in self._members:
            self._lost[name] = self._members.pop(name)

    def summary(self) -> ParetoSummary | None:
        """Return what is known of the set; None while no trial was measured."""
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
"""What a summary follows from: the costs of the first trials; order and costs of the members."""


def _summarized(first: list[Point], members: dict[str, tuple[int, Point]]) -> ParetoSummary:
    names = sorted(members, key=lambda name: (members[name][1], members[name][0], name))
    points = [members[name][1] for name in names]
    reference = reference_point(first)
    volume = float(f"{hypervolume(points, reference):.{_DIGITS}g}")
    shown = tuple(names[i] for i in spread(points, SHOWN_TRIALS))
    return ParetoSummary(shown, len(names), volume, reference, tuple(points))
