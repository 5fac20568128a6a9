"""Katib's algorithms as an Optuna sampler, in the sampling program: no server, no process."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalChoiceType,
    CategoricalDistribution,
    distribution_to_json,
)
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from katib.doors.optuna_storage.translation import parameter_of
from katib.errors import invalid
from katib.model.algorithms import AlgorithmInfo, Feature
from katib.model.types import (
    AlgorithmSetting,
    AlgorithmSpec,
    ExperimentSpec,
    ObjectiveSpec,
    ObjectiveTerm,
    ObjectiveType,
    ParameterSpec,
)
from suggestion_services.algorithms import find_entry
from suggestion_services.base.algorithm import Algorithm, AwaitingTrials, PastTrial, Problem, Proposal, TrialOutcome

_LABELS = "katib:labels"
"""System attribute of a trial: the labels that the algorithm assigned to it and needs back."""

_UNFIT = frozenset({"hyperband", "bohb", "asha", "pbt", "enas", "darts"})
"""Algorithms that also decide how long a trial trains, or from which checkpoint."""

_OUTCOMES = {
    TrialState.RUNNING: TrialOutcome.PENDING,
    TrialState.COMPLETE: TrialOutcome.MEASURED,
    TrialState.PRUNED: TrialOutcome.MEASURED,
    TrialState.FAIL: TrialOutcome.BAD,
}


@dataclass(slots=True)
class _AlgorithmSession:
    """An algorithm for one search space."""

    space: Mapping[str, BaseDistribution]
    algorithm: Algorithm


class Sampler(BaseSampler):
    """Samples with a suggestion algorithm of katib. Thread-safe.

    The parameters common to all trials so far are sampled together; any other one, and all of the first trial, at
    random.

    Args:
        algorithm: Its name, such as `gp` or `cmaes`; `katib algorithms` lists them.
        seed: Makes a search repeatable; without one it depends on the name of the study.
        settings: Settings of the algorithm.

    Raises:
        NotFoundError: The algorithm does not exist.
        InvalidError: It cannot sample for Optuna, or a setting is wrong.
        TerminalError: A package that it needs is missing.
    """

    def __init__(
        self, algorithm: str = "auto", *, seed: int | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        entry = find_entry(algorithm)
        if algorithm in _UNFIT:
            cause = f"{algorithm} cannot sample for Optuna: it decides about more than the parameters of a trial"
            raise invalid("algorithm", cause, "use another one, such as auto", "sampler-name")
        entry.check_installed()
        self._info: AlgorithmInfo = entry.info
        self._load = entry.load
        given = {**(settings or {}), **({} if seed is None else {"random_state": seed})}
        self._settings = tuple(AlgorithmSetting(name=name, value=str(value)) for name, value in given.items())
        Problem.of("check", self._spec((), [False]), self._info, allow_no_parameters=True)
        self._independent = RandomSampler(seed)
        self._common = IntersectionSearchSpace()
        self._lock = threading.Lock()
        self._searches: dict[str, _AlgorithmSession] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy in another process."""
        return {**self.__dict__, "_lock": None, "_searches": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def reseed_rng(self) -> None:
        """Make concurrent copies differ in their random numbers."""
        self._independent.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:  # noqa: ARG002 - Optuna's
        """Return the parameters that are sampled together."""
        self._check_directions(study)
        with self._lock:
            found = self._common.calculate(study)
        return {name: distribution for name, distribution in found.items() if not distribution.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a suggestion of the algorithm; parameters without one are sampled at random."""
        self._check_directions(study)
        if not search_space:
            return {}
        with self._lock:
            texts = self._suggested(study, trial, search_space)
        return {
            name: distribution.to_external_repr(float(texts[name]))
            if name in texts
            else self._independent.sample_independent(study, trial, name, distribution)
            for name, distribution in search_space.items()
        }

    def _suggested(self, study: Study, trial: FrozenTrial, space: Mapping[str, BaseDistribution]) -> Mapping[str, str]:
        """Return the next suggestion as texts by name; empty if there is none."""
        search = self._search(study, space)
        if search is None:
            return {}
        past = list(_past(study, trial, space)) if self._info.reads_history else []
        try:
            found = next(search.algorithm.suggest(past, first=trial.number, count=1), None)
        except AwaitingTrials:
            found = None
        if isinstance(found, Proposal):
            if found.labels:
                labels = json.dumps(dict(found.labels))
                study._storage.set_trial_system_attr(trial._trial_id, _LABELS, labels)  # noqa: SLF001 - as Optuna's samplers
            return found.assignments
        return {} if found is None else search.algorithm.problem.space.format(found)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        self._check_directions(study)
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _check_directions(self, study: Study) -> None:
        if Feature.SEVERAL_OBJECTIVES not in self._info.features:
            self._raise_error_if_multi_objective(study)

    def _search(self, study: Study, space: Mapping[str, BaseDistribution]) -> _AlgorithmSession | None:
        """Return the search for the space of a study, the same while the space is unchanged.

        None for a space that the algorithm cannot search, such as one without numbers.
        """
        found = self._searches.get(study.study_name)
        if found is None or found.space != space:
            parameters = tuple(_parameter(name, distribution) for name, distribution in space.items())
            directions = [direction is StudyDirection.MAXIMIZE for direction in study.directions]
            problem = Problem.of(study.study_name, self._spec(parameters, directions), self._info)
            algorithm_class = self._load()
            numbers = [one for one in space.values() if not isinstance(one, CategoricalDistribution)]
            if len(numbers) < self._info.numeric_parameters or list(algorithm_class.check(problem)):
                return None
            found = self._searches[study.study_name] = _AlgorithmSession(dict(space), algorithm_class(problem))
        return found

    def _spec(self, parameters: tuple[ParameterSpec, ...], directions: list[bool]) -> ExperimentSpec:
        types = (ObjectiveType.MAXIMIZE if maximized else ObjectiveType.MINIMIZE for maximized in directions)
        terms = tuple(ObjectiveTerm(name=f"value_{i}", type=type_.value) for i, type_ in enumerate(types))
        objective = ObjectiveSpec(type=terms[0].type, objective_metric_name=terms[0].name)
        if len(terms) > 1:
            objective = ObjectiveSpec(type=terms[0].type, objective_metric_name=terms[0].name, objectives=terms)
        algorithm = AlgorithmSpec(algorithm_name=self._info.name, algorithm_settings=self._settings)
        return ExperimentSpec(parameters=parameters, objective=objective, algorithm=algorithm)


def _past(study: Study, current: FrozenTrial, space: Mapping[str, BaseDistribution]) -> Iterable[PastTrial]:
    """Yield the trials of a study as past trials, sorted by name."""
    for trial in study._get_trials(deepcopy=False, use_cache=False):  # noqa: SLF001 - as Optuna's samplers
        outcome = _OUTCOMES.get(trial.state)
        if outcome is None or trial.number == current.number:
            continue
        values = trial.values or ([trial.intermediate_values[trial.last_step]] if trial.last_step is not None else [])
        if outcome is TrialOutcome.MEASURED and not (values and all(map(math.isfinite, values))):
            outcome = TrialOutcome.BAD
        measured = values if outcome is TrialOutcome.MEASURED else [math.nan] * len(study.directions)
        duration = trial.duration
        yield PastTrial(
            f"{trial.number:09}",
            outcome,
            {name: _text(space[name], value) for name, value in trial.params.items() if name in space},
            measured[0],
            math.nan if duration is None else duration.total_seconds(),
            tuple(measured[1:]),
            labels=json.loads(trial.system_attrs.get(_LABELS, "{}")),
            start_time="" if trial.datetime_start is None else trial.datetime_start.astimezone().isoformat(),
        )


def _parameter(name: str, distribution: BaseDistribution) -> ParameterSpec:
    """Return a parameter; a choice is its index, since two choices may have the same text."""
    if isinstance(distribution, CategoricalDistribution):
        distribution = CategoricalDistribution([str(index) for index in range(len(distribution.choices))])
    return parameter_of(name, distribution.to_internal_repr(_any(distribution)), distribution_to_json(distribution))[1]


def _any(distribution: Any) -> Any:
    return distribution.choices[0] if isinstance(distribution, CategoricalDistribution) else distribution.low


def _text(distribution: BaseDistribution, value: CategoricalChoiceType) -> str:
    if isinstance(distribution, CategoricalDistribution):
        return str(int(distribution.to_internal_repr(value)))
    return repr(value)
