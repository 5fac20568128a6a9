"""The algorithm `cmaes`: a normal distribution that moves and stretches towards the better trials of each generation.

Theory of operation: each suggestion carries its number and the number of restarts before it as labels, which come back
with the trial. The ended trials, ordered by number, are cut into generations, and each one moves the distribution: so
it is a function of the history. A suggestion is a draw from the present distribution, seeded with its number. No
suggestion
waits for a complete generation: with parallel trials a hanging trial blocks nothing, and a late one joins the
generation at its end. With one trial at a time this is CMA-ES as published.

Failed trials are the worst of their generation; killed ones are left out. Trials without our labels (added by hand, or
from another service) come first; those of earlier experiments decide where the search starts, as in [Nomura2021] Warm
Starting CMA-ES for Hyperparameter Optimization, AAAI 2021. `distribution` and `restarts` cite their sources.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from cmaes import get_warm_start_mgd
from typing_extensions import override

from katib.errors import FieldError
from suggestion_services.base.algorithm import Algorithm, PastTrial, Problem, Proposal, TrialOutcome
from suggestion_services.base.allowed import REJECTED, allowed_near
from suggestion_services.cmaes.coordinates import Candidate, Coordinates, is_numeric
from suggestion_services.cmaes.distribution import SearchDistribution, SearchStart, usual_population
from suggestion_services.cmaes.restarts import Restarts

NUMBER_LABEL = "cmaes.suggestion.katib.kubeflow.org/number"
RESTARTS_LABEL = "cmaes.suggestion.katib.kubeflow.org/restarts"

_LEAST_NUMBERS = 2  # it learns dependencies between parameters
_SIGMA = 1 / 6  # of the range, as in Katib's services
_LEAST_SIGMA = 1e-6
_DRAWS = 20  # the second half of them uniform: if few points are left only chance finds them
_KEPT = 16  # generations kept, in case a straggler of one ends late
_LEAST_EARLIER = 20  # trials, of which the best tenth is used


class CmaEs(Algorithm):
    """The algorithm `cmaes`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._coordinates = Coordinates(problem.space)
        self._is_finite = problem.space.size is not None
        self._kept: deque[_SearchState] = deque(maxlen=_KEPT)
        self._earlier: Sequence[PastTrial] = ()

    @classmethod
    @override
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        count = sum(map(is_numeric, problem.space.parameters))
        if count >= _LEAST_NUMBERS:
            return []
        cause = f"cmaes needs at least {_LEAST_NUMBERS} parameters whose values are numbers, not {count}"
        remedy = "use tpe, which searches any space"
        return [FieldError("spec.parameters", cause, remedy, "algorithm-numeric-parameters")]

    @override
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Proposal]:
        search = self._replay(trials)
        taken = set(map(self._key, self._takers(trials)))
        for k in range(first, first + count):
            assignments = self._draw(search.distribution, k, taken)
            taken.add(tuple(assignments.items()))
            yield Proposal(assignments, {NUMBER_LABEL: str(k), RESTARTS_LABEL: str(search.restarts.count)})

    def _takers(self, trials: Sequence[PastTrial]) -> Iterator[PastTrial]:
        """Return the trials with points that should not be repeated."""
        if self._is_finite:
            return (t for t in trials if t.outcome is not TrialOutcome.SILENT and not t.is_earlier)
        return (t for t in trials if t.outcome is TrialOutcome.PENDING and not t.is_earlier)

    def _key(self, trial: PastTrial) -> _Key:
        """Return the assignments of a trial as `SearchSpace.format` gives them: without absent parameters."""
        space = self.problem.space
        return tuple((space.drop_absent(trial.assignments) if space.conditions else trial.assignments).items())

    def _draw(self, distribution: SearchDistribution, k: int, taken: set[_Key]) -> dict[str, str]:
        """Return the assignments of a new point, unless hardly any is left.

        In a finite space a narrow distribution would draw the same few points repeatedly.
        """
        seed, random = self.problem.seed_of(k), self.problem.random(k)
        for attempt in range(_DRAWS):
            if attempt < _DRAWS // 2:
                point = self._coordinates.point(distribution.draw((seed + attempt) % 2**32))
                point = point if attempt < REJECTED else allowed_near(self.problem.space, point)
            else:
                point = self.problem.space.sample(random)
            assignments = self.problem.space.format(point)
            if tuple(assignments.items()) not in taken and self.problem.space.allows(point):
                break
        return assignments

    def _replay(self, trials: Sequence[PastTrial]) -> _SearchState:
        """Return the search after the history, starting from the last valid state."""
        own = [t for t in trials if not t.is_earlier and t.outcome in (TrialOutcome.MEASURED, TrialOutcome.BAD)]
        own.sort(key=lambda t: t.number(NUMBER_LABEL))  # stable: equal numbers and trials without one keep their order
        earlier = [t for t in trials if t.is_earlier and t.outcome is TrialOutcome.MEASURED]
        search = self._resumed(own, earlier)
        while (after := search.advanced(own, self)) is not None:
            search = after
            self._kept.append(search)
        return search

    def _resumed(self, own: Sequence[PastTrial], earlier: Sequence[PastTrial]) -> _SearchState:
        if earlier != self._earlier:
            self._kept.clear()
            self._earlier = earlier
        while self._kept:
            seen = self._kept[-1].seen
            if len(seen) <= len(own) and all(a is b or a == b for a, b in zip(seen, own, strict=False)):
                return self._kept[-1]
            self._kept.pop()
        start = self._start(earlier)
        strategy = self.problem.settings.text("restart_strategy", "ipop").lower()
        return _SearchState(Restarts(strategy, start), self.distribution(start), (), 0)

    def distribution(self, start: SearchStart) -> SearchDistribution:
        sizes = [parameter.size or 0 for parameter in self._coordinates.categorical]
        return SearchDistribution(start, sizes)

    def random_of_restart(self, count: int) -> Random:
        return Random(f"{self.problem.seed}/restart {count}")

    def solution(self, trial: PastTrial) -> tuple[Candidate, float] | None:
        """Return the candidate and the cost of an ended trial; None if the trial does not fit the space."""
        point = self.problem.space.nearest(trial.assignments.items())
        if point is None:
            return None
        cost = math.inf
        if trial.outcome is TrialOutcome.MEASURED:
            cost = -trial.objective if self.problem.maximize else trial.objective
        return self._coordinates.candidate(point), cost

    def _start(self, earlier: Sequence[PastTrial]) -> SearchStart:
        settings, d = self.problem.settings, len(self._coordinates.numeric)
        given = settings.number("sigma", 0.0)  # 0, which Katib allows, would never move
        sigma = min(max(given, _LEAST_SIGMA), 1.0) if given else _SIGMA
        usual = usual_population(d + len(self._coordinates.categorical))
        population = max(usual, min(self.problem.parallel, 10 * usual))  # at least the parallel trials
        start = SearchStart(np.full(d, 0.5), sigma, population)
        found = [solution for trial in earlier if (solution := self.solution(trial)) is not None]
        solutions = [(candidate.numbers, cost) for candidate, cost in found]
        if not solutions or d == 0:
            return start
        if len(solutions) < _LEAST_EARLIER:
            return SearchStart(min(solutions, key=lambda one: one[1])[0], sigma, population)
        mean, learned, covariance = get_warm_start_mgd(solutions)
        return SearchStart(np.clip(mean, 0.0, 1.0), sigma if given else float(learned), population, covariance)


@dataclass(frozen=True)
class _SearchState:
    """A search after some generations.

    Attributes:
        restarts: The searches before.
        distribution: The current distribution. Never changed once it is here.
        seen: The trials that have been used or skipped, in order.
        used: How many of them the current search has used.
    """

    restarts: Restarts
    distribution: SearchDistribution
    seen: Sequence[PastTrial]
    used: int

    def advanced(self, own: Sequence[PastTrial], algorithm: CmaEs) -> _SearchState | None:
        """Return the search after one more generation, or after a restart; None if trials are missing."""
        if self.restarts.strategy != "none" and self.distribution.has_converged:
            random = algorithm.random_of_restart(self.restarts.count + 1)
            restarts, start = self.restarts.next(self.used, random)
            return _SearchState(restarts, algorithm.distribution(start), self.seen, 0)
        generation: list[tuple[Candidate, float]] = []
        for i in range(len(self.seen), len(own)):
            if 0 <= own[i].number(RESTARTS_LABEL) < self.restarts.count:
                continue  # a straggler of a converged search
            solution = algorithm.solution(own[i])
            if solution is not None:
                generation.append(solution)
            if len(generation) == self.distribution.population:
                distribution = self.distribution
                if not distribution.is_exhausted:
                    distribution = distribution.copy()
                    distribution.tell(generation)
                return _SearchState(self.restarts, distribution, own[: i + 1], self.used + len(generation))
        return None


_Key = tuple[tuple[str, str], ...]
