"""Progress of the brackets, derived from the past trials.

Theory of operation: the labels of a trial hold its bracket, its rung and its parent. So the history is the complete
state; if labels do not come back (Katib's own controllers drop them), trials are recognized by their values: a trial
belongs to the bracket that starts with its resource, or continues the trial with the same other values and the resource
of the rung below.

A rung is complete when all its trials exist and have ended; then the best of them are continued in the next one. Only
trials with a value are: failed and diverged ones are worse than all others, and a trial that ended without information
is skipped. With too few of them the next rung is smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from katib.model.space.parameters import Parameter, Value
from suggestion_services.base.algorithm import PastTrial, Problem, TrialOutcome
from suggestion_services.hyperband.schedule import BracketPlan


@dataclass(frozen=True, slots=True)
class Labels:
    """Names of the labels of one algorithm."""

    prefix: str

    @property
    def bracket(self) -> str:
        """Index of the bracket, from 0 over all rounds."""
        return f"{self.prefix}/bracket"

    @property
    def rung(self) -> str:
        """Index of the rung within its bracket, from 0."""
        return f"{self.prefix}/rung"

    @property
    def parent(self) -> str:
        """Name of the continued trial; absent in the first rung."""
        return f"{self.prefix}/parent"

    def of(self, bracket: int, rung: int, parent: str = "") -> dict[str, str]:
        labels = {self.bracket: str(bracket), self.rung: str(rung)}
        return {**labels, self.parent: parent} if parent else labels


@dataclass(frozen=True, slots=True)
class RungMember:
    """A trial in a rung.

    Attributes:
        is_pending: Whether it has not ended.
        rank: Rank of a trial with a value, lower is better; None for all others.
        assignments: Text by parameter name.
    """

    name: str
    is_pending: bool
    rank: tuple[float, float] | None
    assignments: Mapping[str, str]
    parent: str = ""


@dataclass
class Bracket:
    """The present state of one bracket."""

    number: int
    plan: BracketPlan
    rungs: list[list[RungMember]] = field(default_factory=list)
    _is_over: bool = False

    def __post_init__(self) -> None:
        self.rungs = [[] for _ in self.plan.rungs]

    @property
    def begins(self) -> bool:
        """Whether trials are missing in the first rung. Once the second has started, none are added to the first."""
        return len(self.rungs[0]) < self.plan.rungs[0].size and not any(self.rungs[1:])

    @property
    def outstanding(self) -> int:
        """Number of promotions that may still follow."""
        pairs = zip(self.plan.rungs[1:], self.rungs[1:], strict=True)
        return 0 if self.is_over else sum(max(rung.size - len(members), 0) for rung, members in pairs)

    @property
    def current(self) -> int:
        """The current rung: the highest one with trials."""
        return max((i for i, members in enumerate(self.rungs) if members), default=0)

    @property
    def is_over(self) -> bool:
        """Whether no more trials will follow; final."""
        if not self._is_over:
            self._is_over = not self.begins and not self.pending() and self.promotion() is None
        return self._is_over

    def pending(self) -> list[RungMember]:
        return [member for members in self.rungs for member in members if member.is_pending]

    def promotion(self) -> tuple[int, RungMember] | None:
        """Return the next trial to continue and its rung; None if there is none now."""
        if self.begins:
            return None
        for i in range(1, len(self.rungs)):
            below, members = self.rungs[i - 1], self.rungs[i]
            if any(member.is_pending for member in below):
                return None
            ranked = sorted((m for m in below if m.rank is not None), key=lambda m: m.rank or ())
            if len(members) < min(self.plan.rungs[i].size, len(ranked)):
                continued = {member.parent for member in members}
                return next(((i, member) for member in ranked if member.name not in continued), None)
        return None

    def early_promotion(self) -> tuple[int, RungMember] | None:
        """Return the trial to continue before its rung has ended, and the next rung; None if all rungs are full.

        The best of the ended ones come first, then those that were chosen first.
        """
        for i in range(1, len(self.rungs)):
            if len(self.rungs[i]) < self.plan.rungs[i].size:
                continued = {member.parent for member in self.rungs[i]}
                free = [member for member in self.rungs[i - 1] if member.name not in continued]
                ended = sorted((m for m in free if m.rank is not None), key=lambda m: m.rank or ())
                found = next(iter([*ended, *(m for m in free if m.is_pending)]), None)
                if found is not None:
                    return i, found
        return None


class Brackets:
    """All brackets of an experiment, created on demand.

    Args:
        plans: Plans of one round; the brackets of further rounds repeat them.
    """

    def __init__(
        self, plans: Sequence[BracketPlan], resource: Parameter | None, labels: Labels, kind: type[Bracket] = Bracket
    ) -> None:
        self._plans, self._kind = plans, kind
        self._resource = resource
        self._labels = labels
        self._known: dict[int, Bracket] = {}

    def get(self, number: int) -> Bracket:
        """Return a bracket; it may be empty."""
        if number not in self._known:
            self._known[number] = self._kind(number, self._plans[number % len(self._plans)])
        return self._known[number]

    def begun(self) -> list[int]:
        """Return the indices of the brackets with trials, in order."""
        return sorted(number for number, bracket in self._known.items() if any(bracket.rungs))

    def add(self, number: int, rung: int, member: RungMember) -> None:
        self.get(number).rungs[rung].append(member)

    def fill(self, trials: Sequence[PastTrial], problem: Problem, most: int | None) -> None:
        """Add past trials to their rungs.

        Args:
            trials: The experiment's own trials.
            most: Number of brackets; None: unlimited.
        """
        strangers: list[RungMember] = []
        for trial in trials:
            place = self._place(trial, most)
            member = RungMember(
                trial.name,
                trial.outcome is TrialOutcome.PENDING,
                rank_of(trial, maximize=problem.maximize),
                trial.assignments,
                trial.labels.get(self._labels.parent, ""),
            )
            if place is None:
                strangers.append(member)
            else:
                self.add(*place, member)
        self._adopt(strangers, most)

    def _place(self, trial: PastTrial, most: int | None) -> tuple[int, int] | None:
        texts = [trial.labels.get(name, "") for name in (self._labels.bracket, self._labels.rung)]
        if not all(text.isascii() and text.isdigit() and len(text) < 10 for text in texts):  # noqa: PLR2004
            return None
        number, rung = map(int, texts)
        fits = (most is None or number < most) and rung < len(self._plans[number % len(self._plans)].rungs)
        return (number, rung) if fits else None

    def _adopt(self, strangers: Sequence[RungMember], most: int | None) -> None:
        """Find rungs for trials without labels; those that fit nowhere are ignored."""
        for value, member in sorted(self._read(strangers), key=lambda pair: _order(pair[0])):
            if not self._continue(value, member):
                self._begin(value, member, most)

    def _read(self, members: Sequence[RungMember]) -> Iterator[tuple[Value | None, RungMember]]:
        """Yield the trials with a readable resource, with it."""
        resource = self._resource
        for member in members:
            with suppress(ValueError):
                text = "" if resource is None else member.assignments.get(resource.name, "")
                yield None if resource is None else resource.nearest(text), member

    def _continue(self, value: Value | None, member: RungMember) -> bool:
        """Put a trial above its parent, if there is one."""
        others = self._others(member)
        for number in sorted(self._known):
            bracket = self._known[number]
            for i in range(1, len(bracket.rungs)):
                if bracket.plan.rungs[i].resource != value:
                    continue
                continued = {m.parent for m in bracket.rungs[i]}
                below = (m for m in bracket.rungs[i - 1] if m.name not in continued and self._others(m) == others)
                parent = next(below, None)
                if parent is not None:  # in any state: it may have been continued before it ended
                    self.add(
                        number,
                        i,
                        RungMember(member.name, member.is_pending, member.rank, member.assignments, parent.name),
                    )
                    return True
        return False

    def _begin(self, value: Value | None, member: RungMember, most: int | None) -> None:
        """Put a trial into the first bracket that starts with its resource and has room."""
        number = 0
        if all(plan.rungs[0].resource != value for plan in self._plans):
            return
        while most is None or number < most:
            bracket = self.get(number)
            if bracket.plan.rungs[0].resource == value and bracket.begins:
                self.add(number, 0, member)
                return
            number += 1

    def _others(self, member: RungMember) -> dict[str, str]:
        name = "" if self._resource is None else self._resource.name
        return {key: text for key, text in member.assignments.items() if key != name}


def rank_of(trial: PastTrial, *, maximize: bool) -> tuple[float, float] | None:
    """Return the sort key of a trial, lower is better; None if it has no value.

    Infeasible trials come after all feasible ones, by their violation; one with an unread constraint comes last.
    """
    if trial.outcome is not TrialOutcome.MEASURED:
        return None
    violation = sum(math.inf if math.isnan(v) else max(v, 0.0) for v in trial.violations)
    return violation, -trial.objective if maximize else trial.objective


def _order(value: Value | None) -> float:
    return 0.0 if value is None else float(value)
