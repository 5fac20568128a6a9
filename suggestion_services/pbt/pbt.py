"""Population based training, asynchronous: hyperparameters that change while a model trains.

A fixed number of members train at once; each trial is a step of one of them, from the checkpoint of its parent. A
member that is among the worst at its age continues from the checkpoint of one of the best, with slightly changed
hyperparameters; all others continue unchanged.

Source: [Jaderberg2017] Population Based Training of Neural Networks, arXiv:1711.09846, algorithm 1 with truncation
selection. As there, only members that copy explore (Katib's service changes all members' values at every step), and a
copy starts from the checkpoint of the copied member (unlike in Katib's service).

Nothing waits for a generation: the idle member with the fewest steps is next, compared with the others at its age. It
copies the latest state of the better one, whose checkpoint is kept; with `keep_checkpoints` `all`, the state at the
same age. While all of them train, one more joins. A failed step is repeated with the same values from the same
checkpoint; if that fails as well, its member copies one of the best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random

from typing_extensions import override

from katib.errors import FieldError
from katib.model.checkpoints import KEEP_ALL, KEEP_SETTING, is_url
from katib.model.space import Point
from suggestion_services.base.algorithm import Algorithm, PastTrial, Problem, Proposal, TrialOutcome
from suggestion_services.base.checkpoint_volume import CheckpointVolume, check_place
from suggestion_services.pbt.population import Member, Population, TrainingStep, explored, lost_to

DEFAULT_POPULATION = 10
DEFAULT_THRESHOLD = 0.2
"""[Jaderberg2017]: the worst fifth copies the best fifth."""


class PopulationBasedTraining(Algorithm):
    """The algorithm `pbt`.

    Args:
        volume: The volume on which the service provides the checkpoints of trials; None if the controller does.
    """

    def __init__(self, problem: Problem, volume: CheckpointVolume | None = None) -> None:
        super().__init__(problem)
        settings = problem.settings
        self._size = settings.whole("n_population", DEFAULT_POPULATION)
        self._threshold = settings.number("truncation_threshold", DEFAULT_THRESHOLD)
        self._resample_probability = settings.number("resample_probability", 0.0)
        self._keeps_all = settings.text(KEEP_SETTING, "needed") == KEEP_ALL
        is_remote = is_url(settings.text("suggestion_trial_dir", ""))
        self._volume = None if is_remote else volume or CheckpointVolume.of_environment()

    @classmethod
    @override
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        """Refuse a checkpoint path that cannot be passed to a program."""
        return check_place(problem.settings.text("suggestion_trial_dir", ""))

    @override
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Proposal]:
        population = Population(trials, maximize=self.problem.maximize)
        if self._volume is not None and not self._keeps_all:
            self._volume.remove_unneeded(self.problem, trials, first)
        for k in range(first, first + count):
            step = self._next_step(population, k)
            population.add(step)
            if self._volume is not None:
                self._volume.provide(self.problem.experiment, step.name, step.parent)
            yield Proposal(step.assignments, step.labels, "" if self._volume is None else step.name)

    @override
    def explain(self) -> str:
        budget = self.problem.max_trial_count
        if budget is None or budget > self._size:
            return ""
        return (
            f"no member of the population of {self._size} trains a second time within maxTrialCount {budget}; "
            "raise maxTrialCount or lower n_population"
        )

    def _next_step(self, population: Population, k: int) -> TrainingStep:
        random = self.problem.random(k)
        if len(population) < self._size:
            return self._newcomer(population, k, random)
        member = population.next_idle()
        if member is None:
            return self._newcomer(population, k, random)
        latest = member.latest
        if member.is_lost or not latest.has_failed:
            return self._trained_on(population, member, k, random)
        point = self._point(latest) or self.problem.space.sample(random)
        return self._step(population, k, latest.member, latest.number + 1, latest.parent, latest.generation, point)

    def _trained_on(self, population: Population, member: Member, k: int, random: Random) -> TrainingStep:
        """Return the next step of a member: a copy of another one, a continuation, or a fresh start."""
        latest = member.latest
        own = None if member.is_lost or self._point(latest) is None else latest
        # A share of all members: one of the worst is also among the worst of the known ones.
        count = int(len(population) * self._threshold + 1e-9)  # without the addition 0.29 * 100 would be 28
        models = lost_to(population.ranking(latest.generation, exactly=own is not None), own, count)
        if not self._keeps_all:
            models = [population.newest_of(step) for step in models]
        usable = [(step, point) for step in models if (point := self._point(step)) is not None]
        kept = None if own is None else self._point(own)
        number = latest.number + 1
        if usable:
            model, point = random.choice(usable)
            point = explored(self.problem.space, point, random, self._resample_probability)
            return self._step(population, k, latest.member, number, model.name, model.generation + 1, point)
        if own is not None and kept is not None:
            return self._step(population, k, latest.member, number, own.name, own.generation + 1, kept)
        return self._step(population, k, latest.member, number, "", 0, self.problem.space.sample(random))

    def _newcomer(self, population: Population, k: int, random: Random) -> TrainingStep:
        """Return the first step of a new member.

        The first ones are spread over the range of every parameter, except that every second one starts with the values
        of an earlier experiment's best, while there are any.
        """
        member = population.unused_member()
        number = int(member)
        models = [point for step in population.models[: self._size] if (point := self._point(step)) is not None]
        if number % 2 == 1 and number // 2 < min(len(models), self._size // 2):
            return self._step(population, k, member, 0, "", 0, models[number // 2])
        if number >= self._size:
            return self._step(population, k, member, 0, "", 0, self.problem.space.sample(random))
        point = {}
        for parameter in self.problem.space.parameters:
            strata = list(range(self._size))
            Random(f"{self.problem.seed}/strata/{parameter.name}").shuffle(strata)
            point[parameter.name] = parameter.from_unit((strata[number] + random.random()) / self._size)
        return self._step(population, k, member, 0, "", 0, point)

    def _step(
        self, population: Population, k: int, member: str, number: int, parent: str, generation: int, point: Point
    ) -> TrainingStep:
        assignments = self.problem.space.format(point)
        name = f"{k}" if self._volume is None else self._volume.trial_name(self.problem.experiment, k, population.taken)
        return TrainingStep(member, number, generation, parent, name, TrialOutcome.PENDING, math.nan, assignments)

    def _point(self, step: TrainingStep) -> Point | None:
        """Return the values of a step; None if they are outside this space: it may be of another service."""
        return self.problem.space.nearest(step.assignments.items())
