"""The algorithm `auto`: chooses another algorithm by the search space, and forwards its suggestions.

Like a suggestion, the choice is a function of the problem and the past trials: it is made in each request, and depends
on how many trials have ended and how long they took, never on when they ended. The algorithms see all trials, including
those that another one suggested. Algorithms that are not chosen are not imported.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from typing_extensions import override

from katib.errors import FieldError, NotFoundError
from katib.model.algorithms import Feature
from katib.model.space import Point
from suggestion_services import algorithms
from suggestion_services.auto.choice import AlgorithmChoice, ChoiceInputs, candidates
from suggestion_services.base.algorithm import Algorithm, PastTrial, Problem, Proposal, TrialOutcome
from suggestion_services.base.settings import Settings

_ENDED = (TrialOutcome.MEASURED, TrialOutcome.BAD)


class Auto(Algorithm):
    """The algorithm `auto`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._chosen: tuple[str, Algorithm] | None = None
        self._reason = ""

    @classmethod
    @override
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        if problem.nas is not None:
            cause, remedy = "auto does not search architectures", "name enas or darts"
            return [FieldError("spec.algorithm.algorithmName", cause, remedy, "algorithm-nas")]
        if not _names_resource(problem):
            return ()
        if len(problem.directions) > 1:
            cause, remedy = "no algorithm with a resource has several objectives", "leave out resource_name and r_l"
            return [FieldError("spec.algorithm.algorithmSettings", cause, remedy, "resource-objectives")]
        checked: Sequence[FieldError] = algorithms.find_entry("asha").load().check(problem)
        return checked

    @classmethod
    @override
    def check_before_start(cls, problem: Problem) -> Sequence[FieldError]:
        if not _names_resource(problem):
            return ()
        checked: Sequence[FieldError] = algorithms.find_entry("asha").load().check_before_start(problem)
        return checked

    @override
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Point | Proposal]:
        return self._choose(facts_of(self.problem, trials)).suggest(trials, first=first, count=count)

    @override
    def explain(self) -> str:
        if self._chosen is None:
            return ""
        name, algorithm = self._chosen
        ignores = self.problem.space.priors and Feature.PRIORS not in algorithms.find_entry(name).info.features
        further = f"{name} ignores the priors" if ignores else algorithm.explain()
        return " ".join(filter(None, (f"auto uses {name}, since {self._reason}.", further)))

    def _choose(self, facts: ChoiceInputs) -> Algorithm:
        for choice in candidates(facts):
            algorithm = self._algorithm(choice)
            if algorithm is not None:
                self._chosen, self._reason = (choice.algorithm, algorithm), choice.reason
                return algorithm
        raise AssertionError("random searches every space")

    def _algorithm(self, choice: AlgorithmChoice) -> Algorithm | None:
        """Return the chosen algorithm for the problem; None if it is unavailable or cannot search it."""
        if self._chosen is not None and self._chosen[0] == choice.algorithm:
            return self._chosen[1]
        with suppress(NotFoundError):
            entry = algorithms.find_entry(choice.algorithm)
            if not set(choice.needs) <= set(entry.info.features):
                return None
            cls, problem = entry.load(), _problem_for(choice.algorithm, self.problem)
            if not cls.check(problem):
                algorithm: Algorithm = cls(problem)
                return algorithm
        return None


def _names_resource(problem: Problem) -> bool:
    return any(problem.settings.get(name) is not None for name in ("resource_name", "r_l"))


def facts_of(problem: Problem, trials: Sequence[PastTrial]) -> ChoiceInputs:
    own = [trial for trial in trials if not trial.is_earlier]
    repeats = problem.is_seeded and problem.parallel <= 1  # durations differ from run to run
    seconds = [trial.seconds for trial in own if trial.seconds >= 0 and not repeats]  # not NaN
    return ChoiceInputs(
        n_parameters=len(problem.space.parameters),
        size=problem.space.size,
        n_objectives=len(problem.directions),
        n_constraints=len(problem.constraints),
        budget=problem.max_trial_count,
        parallel=problem.parallel,
        n_ended=sum(trial.outcome in _ENDED for trial in own),
        stops_early=problem.stops_early,
        has_earlier=len(own) < len(trials),
        resource=problem.settings.text("resource_name", ""),
        **({"seconds": statistics.median(seconds)} if seconds else {}),
    )


def _problem_for(algorithm: str, problem: Problem) -> Problem:
    """Return the problem for the chosen algorithm: with our seed, which has the same meaning for all of them."""
    if algorithm != "grid":
        return problem
    # A seed makes a grid shuffled, and a grid refuses a budget beyond its size.
    settings = problem.settings if problem.is_seeded else Settings({"seed": problem.seed_of(0)})
    return replace(problem, settings=settings, max_trial_count=None)
