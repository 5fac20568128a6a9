"""How far the brackets are, read off the past trials.

Theory of operation: each trial carries in its labels which bracket and rung it is in and which trial it continues. So
the history is all there is to know; where labels do not come back (Katib's own controllers drop them), trials are
recognized by their values: a trial is in the bracket that begins with its resource, or continues the one that has the
same other values and the resource of the rung below.

A rung is complete when all its trials are there and have ended; then the best of it are continued in the next one. Only
trials with a value are: failed and diverged ones are worse than all others, and a trial that ended without a word is
passed over. With too few of them the next rung is smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from katib.model.space.parameters import Parameter, Value
from suggestion_services.base.algorithm import Outcome, PastTrial, Problem
from suggestion_services.hyperband.schedule import BracketPlan


@dataclass(frozen=True, slots=True)
class Labels:
    """Names of the labels of one algorithm."""

    prefix: str

    @property
    def bracket(self) -> str:
        """Number of the bracket, counted from 0 over all rounds."""
        return f"{self.prefix}/bracket"

    @property
    def rung(self) -> str:
        """Number of the rung within its bracket, counted from 0."""
        return f"{self.prefix}/rung"

    @property
    def parent(self) -> str:
        """Name of the trial that is continued; absent in the first rung."""
        return f"{self.prefix}/parent"

    def of(self, bracket: int, rung: int, parent: str = "") -> dict[str, str]:
        """Return the labels of a trial."""
        labels = {self.bracket: str(bracket), self.rung: str(rung)}
        return {**labels, self.parent: parent} if parent else labels


@dataclass(frozen=True, slots=True)
class Member:
    """A trial in a rung.

    Attributes:
        name: Of the trial.
        is_pending: Whether it has not ended.
        rank: Of a trial with a value, lower is better; None for all others.
        assignments: Text by parameter name.
        parent: Name of the trial that it continues.
    """

    name: str
    is_pending: bool
    rank: tuple[float, float] | None
    assignments: Mapping[str, str]
    parent: str = ""


@dataclass
class Bracket:
    """One bracket as far as it is."""

    number: int
    plan: BracketPlan
    rungs: list[list[Member]] = field(default_factory=list)
    _is_over: bool = False

    def __post_init__(self) -> None:
        self.rungs = [[] for _ in self.plan.rungs]

    @property
    def begins(self) -> bool:
        """Whether trials are missing in the first rung. Once the second has begun, nothing is added to the first."""
        return len(self.rungs[0]) < self.plan.rungs[0].size and not any(self.rungs[1:])

    @property
    def outstanding(self) -> int:
        """How many trials may still come by promotion."""
        pairs = zip(self.plan.rungs[1:], self.rungs[1:], strict=True)
        return 0 if self.is_over else sum(max(rung.size - len(members), 0) for rung, members in pairs)

    @property
    def current(self) -> int:
        """The rung at work: the highest one with trials."""
        return max((i for i, members in enumerate(self.rungs) if members), default=0)

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it; once it is, it stays so."""
        if not self._is_over:
            self._is_over = not self.begins and not self.pending() and self.promotion() is None
        return self._is_over

    def pending(self) -> list[Member]:
        """Return its trials that have not ended."""
        return [member for members in self.rungs for member in members if member.is_pending]

    def promotion(self) -> tuple[int, Member] | None:
        """Return the next trial to continue, and in which rung; None when there is none now."""
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

    def early_promotion(self) -> tuple[int, Member] | None:
        """Return what to continue before the rung below has ended, and in which rung; None when all rungs are full.

        The best of those that have ended come first, then those that were chosen first.
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
    """All brackets of an experiment, made as they are needed.

    Args:
        plans: Of one round; the brackets of further rounds repeat them.
        resource: The parameter that receives the resource; None when there is none.
        labels: Of the algorithm.
        kind: Of bracket.
    """

    def __init__(
        self, plans: Sequence[BracketPlan], resource: Parameter | None, labels: Labels, kind: type[Bracket] = Bracket
    ) -> None:
        self._plans, self._kind = plans, kind
        self._resource = resource
        self._labels = labels
        self._known: dict[int, Bracket] = {}

    def get(self, number: int) -> Bracket:
        """Return a bracket; one that has no trials yet is empty."""
        if number not in self._known:
            self._known[number] = self._kind(number, self._plans[number % len(self._plans)])
        return self._known[number]

    def begun(self) -> list[int]:
        """Return the numbers of the brackets that have trials, in order."""
        return sorted(number for number, bracket in self._known.items() if any(bracket.rungs))

    def add(self, number: int, rung: int, member: Member) -> None:
        """Put a trial in its rung."""
        self.get(number).rungs[rung].append(member)

    def fill(self, trials: Sequence[PastTrial], problem: Problem, most: int | None) -> None:
        """Put past trials in their rungs.

        Args:
            trials: The experiment's own.
            problem: What is searched.
            most: How many brackets there are; None: no end of them.
        """
        strangers: list[Member] = []
        for trial in trials:
            place = self._place(trial, most)
            member = Member(
                trial.name,
                trial.outcome is Outcome.PENDING,
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

    def _adopt(self, strangers: Sequence[Member], most: int | None) -> None:
        """Find the places of trials without labels; those that fit nowhere are passed over."""
        for value, member in sorted(self._read(strangers), key=lambda pair: _order(pair[0])):
            if not self._continue(value, member):
                self._begin(value, member, most)

    def _read(self, members: Sequence[Member]) -> Iterator[tuple[Value | None, Member]]:
        """Yield the trials whose resource can be read, with it."""
        resource = self._resource
        for member in members:
            with suppress(ValueError):
                text = "" if resource is None else member.assignments.get(resource.name, "")
                yield None if resource is None else resource.nearest(text), member

    def _continue(self, value: Value | None, member: Member) -> bool:
        """Put a trial above the one that it continues, if there is one."""
        others = self._others(member)
        for number in sorted(self._known):
            bracket = self._known[number]
            for i in range(1, len(bracket.rungs)):
                if bracket.plan.rungs[i].resource != value:
                    continue
                continued = {m.parent for m in bracket.rungs[i]}
                below = (m for m in bracket.rungs[i - 1] if m.name not in continued and self._others(m) == others)
                parent = next(below, None)
                if parent is not None:  # in whatever state: it may have been continued before it ended
                    self.add(
                        number, i, Member(member.name, member.is_pending, member.rank, member.assignments, parent.name)
                    )
                    return True
        return False

    def _begin(self, value: Value | None, member: Member, most: int | None) -> None:
        """Put a trial into the first bracket that begins with its resource and has room."""
        number = 0
        if all(plan.rungs[0].resource != value for plan in self._plans):
            return
        while most is None or number < most:
            bracket = self.get(number)
            if bracket.plan.rungs[0].resource == value and bracket.begins:
                self.add(number, 0, member)
                return
            number += 1

    def _others(self, member: Member) -> dict[str, str]:
        name = "" if self._resource is None else self._resource.name
        return {key: text for key, text in member.assignments.items() if key != name}


def rank_of(trial: PastTrial, *, maximize: bool) -> tuple[float, float] | None:
    """Return the place of a trial among others, lower is better; None when it has no value.

    A trial that breaks a constraint comes after all that break none, by how far; one whose constraint could not be read
    comes last.
    """
    if trial.outcome is not Outcome.MEASURED:
        return None
    violation = sum(math.inf if math.isnan(v) else v for v in trial.violations)
    return violation, -trial.objective if maximize else trial.objective


def _order(value: Value | None) -> float:
    return 0.0 if value is None else float(value)
