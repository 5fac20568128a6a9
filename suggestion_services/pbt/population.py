"""The population, derived from the labels of its trials. Pure: the same trials give the same population.

A member trains in steps, each of them one trial. A step starts from the checkpoint of its *parent*, an earlier trial of
the same member or of one that it copied; its *generation* is the number of steps from an empty checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from katib.model.names import GENERATION_LABEL, MEMBER_LABEL, PARENT_LABEL, STEP_LABEL
from katib.model.space import Grid, Interval, Parameter, Point, SearchSpace, Value, ValueList
from suggestion_services.base.algorithm import PastTrial, TrialOutcome

MAX_ATTEMPTS = 2
"""Attempts at a step before its member is replaced: one more than Katib's examples fail by chance, and few enough that
diverging hyperparameters do not use up the budget."""

_WHOLE_NUMBER = re.compile(r"[0-9]{1,9}")
_FAILED = (TrialOutcome.BAD, TrialOutcome.SILENT)


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One training of one member.

    Attributes:
        member: Its member: a number, or for a trial without labels (such as one added by a user) the trial's name.
        number: Its index in the member's life, from 0; every attempt counts.
        generation: Number of steps from an empty checkpoint.
        parent: The trial with the initial checkpoint; empty for an empty one.
        score: The objective, higher is better; NaN unless measured.
        assignments: Text by parameter name.
    """

    member: str
    number: int
    generation: int
    parent: str
    name: str
    outcome: TrialOutcome
    score: float
    assignments: Mapping[str, str]

    @classmethod
    def of(cls, trial: PastTrial, *, maximize: bool) -> TrainingStep:
        labels = trial.labels
        return cls(
            member=labels.get(MEMBER_LABEL) or trial.name,
            number=_number(labels.get(STEP_LABEL)),
            generation=_number(labels.get(GENERATION_LABEL)),
            parent=labels.get(PARENT_LABEL, ""),
            name=trial.name,
            outcome=trial.outcome,
            score=trial.objective if maximize else -trial.objective,
            assignments=trial.assignments,
        )

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its trial; without a parent label if there is none, as in Katib."""
        own = {GENERATION_LABEL: str(self.generation), MEMBER_LABEL: self.member, STEP_LABEL: str(self.number)}
        return {**own, PARENT_LABEL: self.parent} if self.parent else own

    @property
    def has_failed(self) -> bool:
        return self.outcome in _FAILED


class Member:
    """The steps of one member, oldest first; at least one."""

    def __init__(self, steps: Sequence[TrainingStep]) -> None:
        self._steps = sorted(steps, key=lambda step: step.number)

    @property
    def latest(self) -> TrainingStep:
        return self._steps[-1]

    @property
    def is_idle(self) -> bool:
        """Whether it waits for its next step."""
        return self.latest.outcome is not TrialOutcome.PENDING

    @property
    def is_lost(self) -> bool:
        """Whether its latest step has used up its attempts."""
        last = self._steps[-MAX_ATTEMPTS:]
        same = {(step.generation, step.parent) for step in last}
        return len(last) == MAX_ATTEMPTS and len(same) == 1 and all(step.has_failed for step in last)

    @property
    def next_generation(self) -> int:
        """The generation of its next step, unless it copies another member."""
        return self.latest.generation + (0 if self.latest.has_failed and not self.is_lost else 1)

    def best_known(self, generation: int, *, exactly: bool) -> TrainingStep | None:
        """Return its furthest measured step up to a generation, or of exactly this one."""
        measured = [s for s in self._steps if s.outcome is TrialOutcome.MEASURED and s.generation <= generation]
        found = max(measured, key=lambda step: (step.generation, step.number), default=None)
        return found if found is None or not exactly or found.generation == generation else None

    @property
    def newest(self) -> TrainingStep | None:
        """Its latest measured step; None if there is none."""
        return next((step for step in reversed(self._steps) if step.outcome is TrialOutcome.MEASURED), None)

    def add(self, step: TrainingStep) -> None:
        self._steps.append(step)


class Population:
    """All members, by name.

    Attributes:
        models: Steps of other experiments, the best first. Only their values are available, not their checkpoints.
    """

    def __init__(self, trials: Sequence[PastTrial], *, maximize: bool) -> None:
        steps: dict[str, list[TrainingStep]] = {}
        models: list[TrainingStep] = []
        for trial in trials:
            step = TrainingStep.of(trial, maximize=maximize)
            if not trial.is_earlier:
                steps.setdefault(step.member, []).append(step)
            elif step.outcome is TrialOutcome.MEASURED:
                models.append(step)
        self._members = {name: Member(steps[name]) for name in sorted(steps, key=_order)}
        self.models = sorted(models, key=lambda step: -step.score)
        self.taken = {trial.name for trial in trials}
        self._unused = 0

    def __len__(self) -> int:
        return len(self._members)

    def next_idle(self) -> Member | None:
        """Return the idle member with the fewest steps; None if all of them train."""
        idle = (member for member in self._members.values() if member.is_idle)
        return min(idle, key=lambda member: (member.next_generation, _order(member.latest.member)), default=None)

    def ranking(self, generation: int, *, exactly: bool) -> list[TrainingStep]:
        """Return the measured steps of a generation, one of each member that has any, the worst first.

        Members that have not reached it are not compared: they would look worse for being younger.

        Args:
            generation: The generation.
            exactly: Whether members that have not reached it are left out; otherwise they count with their furthest
                step.
        """
        known = (member.best_known(generation, exactly=exactly) for member in self._members.values())
        return sorted((step for step in known if step is not None), key=lambda step: step.score)

    def newest_of(self, step: TrainingStep) -> TrainingStep:
        """Return the latest measured step of a step's member, whose checkpoint is kept."""
        return self._members[step.member].newest or step

    def unused_member(self) -> str:
        while str(self._unused) in self._members:
            self._unused += 1
        return str(self._unused)

    def add(self, step: TrainingStep) -> None:
        self.taken.add(step.name)
        if step.member in self._members:
            self._members[step.member].add(step)
        else:
            self._members[step.member] = Member([step])


def lost_to(ranking: list[TrainingStep], step: TrainingStep | None, count: int) -> list[TrainingStep]:
    """Return the steps that a member may copy; empty if it continues with its own.

    Args:
        ranking: The worst first.
        step: The member's step in the ranking; None if it has none, and copies any good one.
        count: Number of members that copy, and of those that are copied.
    """
    best = ranking[-max(count, 1) :]
    if step is None:
        return best
    worst = {one.name for one in ranking[:count]}
    return [one for one in best if one.score > step.score] if step.name in worst else []


def _order(member: str) -> tuple[int, int, str]:
    return (0, int(member), "") if _WHOLE_NUMBER.fullmatch(member) else (1, 0, member)


def _number(text: str | None) -> int:
    return int(text) if text and _WHOLE_NUMBER.fullmatch(text) else 0


# --- new values -------------------------------------------------------------------------------------------------------


FACTORS = (0.8, 1.2)
"""As in [Jaderberg2017] and in Katib."""

_SHARE_OF_RANGE = 0.1
"""Shift of a value of zero, which no factor changes."""


def explored(space: SearchSpace, point: Point, random: Random, resample_probability: float) -> Point:
    """Return a point near that of a copied member.

    Katib multiplies and clips at the bounds, which leaves the grid of steps and never moves zeros and bounds again.
    Here every result is a feasible value, and a new one for each parameter with more than one.

    Args:
        space: The parameters.
        point: Values of all of them.
        random: Random source.
        resample_probability: For each parameter, the probability that its value is drawn again instead.
    """
    return {
        parameter.name: parameter.sample(random)
        if random.random() < resample_probability
        else perturbed(parameter, point[parameter.name], random)
        for parameter in space.parameters
    }


def perturbed(parameter: Parameter, value: Value, random: Random) -> Value:
    """Return a number times 0.8 or 1.2, or a neighboring entry of a list."""
    factor = random.choice(FACTORS)
    other = sum(FACTORS) - factor
    for one in (factor, other):  # the opposite direction at the end of the range
        moved = _moved(parameter, value, one)
        if moved != value:
            return moved
    return value


def _moved(parameter: Parameter, value: Value, factor: float) -> Value:
    direction = 1 if factor > 1 else -1
    if isinstance(parameter, ValueList):
        place = parameter.index_of(value) + direction
        size = len(parameter.values)
        return parameter.at(min(max(place, 0), size - 1) if parameter.ordered else place % size)
    number = float(value)
    if isinstance(parameter, Interval):
        low, high = parameter.spread.low, parameter.spread.high
        target = number * factor if number else direction * _SHARE_OF_RANGE * (high / 2 - low / 2)
        return min(max(target, low), high) + 0.0
    if isinstance(parameter, Grid):
        here = parameter.index_of(value)
        place = parameter.index_of(number * factor)
        away = direction if number >= 0 else -direction
        return parameter.at(min(max(place if place != here else here + away, 0), parameter.count - 1))
    return parameter.from_unit(min(max(parameter.to_unit(value) + direction * _SHARE_OF_RANGE, 0.0), 1.0))
