"""NSGA-II: a population of Pareto-optimal trials, with crossover and mutation.

Source: [Deb2002] A fast and elitist multiobjective genetic algorithm: NSGA-II, IEEE TEC 6(2), with its constrained
domination, as Optuna implements it.

Theory of operation: every suggestion belongs to a generation. A label of its trial holds it, so the generations are in
the history, in whatever order the trials ended. A generation is full when as many of its trials were measured as the
population has; the parents of the next one are the best of it and of its own parents. Trials without a label, such as
those of another search or added by hand, count as the first generation. A trial that ends after its generation was full
may still become a parent: the history counts, not the order of its arrival.

Differs from Optuna's sampler: a point that equals a known trial is drawn again, since a crossover without a mutation
often repeats one; and mutations have their own random source (Optuna seeds both alike, which is harmless only as long
as neither is reseeded for every suggestion). The population grows with the budget: with Optuna's 50, half of a hundred
trials are drawn at random, and there are too few generations to improve.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import NSGAIISampler, RandomSampler
from optuna.storages import InMemoryStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState
from typing_extensions import override

from katib.model.space import Point
from suggestion_services.base.algorithm import Algorithm, PastTrial, Problem, Proposal, TrialOutcome
from suggestion_services.base.allowed import REJECTED, allowed_near
from suggestion_services.base.untried import UntriedPoints
from suggestion_services.tpe.dimensions import dimension_of

optuna.logging.set_verbosity(optuna.logging.WARNING)  # it logs every study, and a request creates one

GENERATION = "generation"
"""The label of a trial with its generation."""

_SMALLEST, _LARGEST = 10, 50
_DRAWS = 20  # the second half of them at random: in a nearly exhausted space only chance finds the rest
_DIGITS = 12  # a logarithm and its inverse lose some digits
_UNREAD = 1e100  # a violation larger than any other
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # Optuna's times carry no zone, and its samplers do not look at them

Params = dict[str, Any]
Key = tuple[Any, ...]
"""Equal for equal points."""


class Nsga2(Algorithm):
    """The algorithm `nsga2`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self._dimensions = {p.name: dimension_of(p) for p in problem.space.parameters}
        self._distributions = {name: dimension.distribution for name, dimension in self._dimensions.items()}
        self._options = sampler_options(problem)
        self._size = int(self._options["population_size"])
        self._known: dict[str, tuple[PastTrial, Key | None, FrozenTrial | None]] = {}
        self._parents: list[tuple[list[FrozenTrial], list[FrozenTrial]]] = []

    @override
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Proposal]:
        self._learn(trials)
        populations = self._populations()
        generation = max(populations, default=0)
        if len(populations.get(generation, ())) >= self._size:
            generation += 1
        storage = InMemoryStorage()
        study_id = storage.create_new_study(
            [StudyDirection.MINIMIZE] * len(self.problem.directions), self.problem.experiment
        )
        study = Study(storage.get_study_name_from_id(study_id), storage)
        parents = self._parents_of(generation, populations, study)
        taken = {key for _, key, _ in self._known.values() if key is not None}
        untried = UntriedPoints(self.problem.space, trials)
        for k in range(first, first + count):
            params = self._draw(study, k, parents, taken)
            taken.add(_key(params))
            point = untried.take(self._point(params), self.problem.random(k))
            yield Proposal(self.problem.space.format(point), {GENERATION: str(generation)})

    def _draw(self, study: Study, k: int, parents: list[FrozenTrial], taken: set[Key]) -> Params:
        """Return a child that equals no trial, unless attempts run out."""
        random = self.problem.random(k)
        for attempt in range(_DRAWS):
            chosen = parents if attempt < _DRAWS // 2 else []
            seeds = random.getrandbits(32), random.getrandbits(32)
            study.sampler = _Nsga2Sampler(self._distributions, chosen, self._options, seeds)
            point = self._point(study.ask(self._distributions).params)
            point = point if attempt < REJECTED else allowed_near(self.problem.space, point)
            params = self._encoded(point)
            if _key(params) not in taken and self.problem.space.allows(point):
                break
        return params

    def _point(self, params: Mapping[str, Any]) -> Point:
        decoded = {name: dimension.decode(_plain(params[name])) for name, dimension in self._dimensions.items()}
        return self.problem.space.complete(decoded)

    def _encoded(self, point: Point) -> Params:
        return {name: self._dimensions[name].encode(value) for name, value in point.items()}

    def _learn(self, trials: Sequence[PastTrial]) -> None:
        """Convert the trials to Optuna's, only those that are new or changed."""
        old = self._known
        self._known = {}
        for trial in trials:
            known = old.get(trial.name)
            if known is None or (known[0] is not trial and known[0] != trial):
                known = self._converted(trial)
            self._known[trial.name] = known

    def _converted(self, trial: PastTrial) -> tuple[PastTrial, Key | None, FrozenTrial | None]:
        point = self.problem.space.nearest(trial.assignments.items())
        if point is None:
            return trial, None, None
        params = self._encoded(point)
        if trial.outcome is not TrialOutcome.MEASURED:
            return trial, _key(params), None
        values = zip(trial.values, self.problem.directions, strict=True)
        costs = [-value if maximized else value for value, maximized in values]
        return trial, _key(params), _frozen(costs, trial.violations, params, self._distributions)

    def _populations(self) -> dict[int, list[FrozenTrial]]:
        """Return the measured trials by generation, in the order of the history."""
        populations: dict[int, list[FrozenTrial]] = {}
        for number, (trial, _, frozen) in enumerate(self._known.values()):
            if frozen is not None:
                frozen.number = number  # Optuna identifies trials by it
                populations.setdefault(_generation_of(trial), []).append(frozen)
        return populations

    def _parents_of(
        self, generation: int, populations: Mapping[int, list[FrozenTrial]], study: Study
    ) -> list[FrozenTrial]:
        """Return the parents of a generation; those of earlier ones are cached while their trials are unchanged."""
        kept, parents = self._parents, list[FrozenTrial]()
        self._parents = []
        for before in range(generation):
            candidates = populations.get(before, []) + parents
            known = kept[before] if before < len(kept) else None
            if known is None or list(map(id, known[0])) != list(map(id, candidates)):
                known = candidates, _ParentSelection(self._size, candidates).select_parent(study, before + 1)
            self._parents.append(known)
            parents = known[1]
        return parents


class _ParentSelection(NSGAIISampler):
    """Optuna's selection of parents from given trials."""

    def __init__(self, size: int, candidates: list[FrozenTrial]) -> None:
        super().__init__(population_size=size)
        self._candidates = candidates

    @override
    def get_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        return list(self._candidates)

    @override
    def get_parent_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        return []


class _Nsga2Sampler(NSGAIISampler):
    """Optuna's sampler for one suggestion, with the search space and the parents given instead of inferred."""

    def __init__(
        self,
        space: Mapping[str, BaseDistribution],
        parents: list[FrozenTrial],
        options: Mapping[str, Any],
        seeds: tuple[int, int],
    ) -> None:
        super().__init__(**options, seed=seeds[0])
        self._space = {name: distribution for name, distribution in space.items() if not distribution.single()}
        self._chosen = parents
        self._draws = RandomSampler(seed=seeds[1])

    @override
    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._space

    @override
    def get_trial_generation(self, study: Study, trial: FrozenTrial) -> int:
        return 1

    @override
    def get_parent_population(self, study: Study, generation: int) -> list[FrozenTrial]:
        return self._chosen

    @override
    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._draws.sample_independent(study, trial, param_name, param_distribution)


def sampler_options(problem: Problem) -> dict[str, Any]:
    """Return every option of Optuna's sampler, except the seed."""
    settings = problem.settings
    mutation = settings.get("mutation_prob")
    return {
        "population_size": settings.whole("population_size", _population(problem.max_trial_count)),
        "mutation_prob": None if mutation is None else float(mutation),
        "crossover_prob": settings.number("crossover_prob", 0.9),
        "swapping_prob": settings.number("swapping_prob", 0.5),
    }


def _population(budget: int | None) -> int:
    """Return the default number of trials in a generation: about the number of generations."""
    return _LARGEST if budget is None else min(max(round(math.sqrt(budget)), _SMALLEST), _LARGEST)


def _generation_of(trial: PastTrial) -> int:
    text = trial.labels.get(GENERATION, "")
    return int(text) if text.isdecimal() and not trial.is_earlier else 0


def _frozen(
    costs: list[float], violations: Sequence[float], params: Params, space: dict[str, BaseDistribution]
) -> FrozenTrial:
    bounded = [_UNREAD if math.isnan(violation) else min(violation, _UNREAD) for violation in violations]
    return FrozenTrial(
        number=0,
        trial_id=0,
        state=TrialState.COMPLETE,
        value=None,
        values=costs,
        datetime_start=_EPOCH,
        datetime_complete=_EPOCH,
        params=params,
        distributions=space,
        user_attrs={},
        system_attrs={"constraints": bounded} if bounded else {},
        intermediate_values={},
    )


def _plain(value: Any) -> Any:
    """Convert elements of arrays to Python values: a child may contain them."""
    return value.item() if isinstance(value, np.generic) else value


def _key(params: Params) -> Key:
    return tuple(f"{value:.{_DIGITS}g}" if isinstance(value, float) else value for value in params.values())
