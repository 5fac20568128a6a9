"""The interface of an algorithm: a problem and past trials in, points out. No wire, no process, no clock.

The same object works in a notebook and behind gRPC:

    problem = Problem.of("demo", experiment.spec, INFO)
    for point in Tpe(problem).suggest(trials, first=len(trials), count=2): ...

Theory of operation: a suggestion is a function of (problem, past trials, k), where k counts the suggestions of the
experiment from 0. State that an algorithm keeps between calls only caches that function. So a restarted service gives
the same answers, a repeated request gets the same answer, and nothing needs to be saved. Past trials are sorted by a
hash of their assignments: times and list orders differ between runs, and names between experiments with the same seed,
so no decision depends on them.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from katib.errors import FieldError, InvalidError, invalid
from katib.model.algorithms import AlgorithmInfo, with_free_resource
from katib.model.names import EXPERIMENT_LABEL
from katib.model.space import Point, SearchSpace
from katib.model.types import AlgorithmSpec, ExperimentSpec, MetricConstraint, NasConfig, ObjectiveSpec, ObjectiveType
from suggestion_services.base.settings import Settings, read_settings

_MOST_DIGITS = 18  # of a number in a label that can be ours


class TrialOutcome(Enum):
    """The outcome of a past trial, as a search learns from it."""

    PENDING = "pending"
    """It is created or running: its point is taken."""
    MEASURED = "measured"
    """It ended with a finite objective value, also when it was stopped early."""
    BAD = "bad"
    """It failed, diverged to NaN or infinity, or was stopped early without a value: worse than every measured one."""
    SILENT = "silent"
    """It ended without information about its point: killed from outside, or its metric could not be read."""


@dataclass(frozen=True, slots=True)
class PastTrial:
    """A past trial as input of an algorithm.

    Attributes:
        name: Unique within the experiment.
        assignments: Text by parameter name. It may lack parameters, or hold values outside the space: trials can come
            from an earlier version of the experiment or from another service.
        objective: Value of the objective metric; NaN unless MEASURED, and then finite.
        seconds: Duration from start to completion; NaN when unknown.
        others: Values of the further objectives, if there are several; finite if MEASURED, NaN otherwise.
        violations: For each constraint the signed distance of its metric to the nearer bound: positive beyond it,
            negative within, NaN if unread.
        labels: Those that the algorithm assigned to the trial.
        start_time: RFC 3339; empty if it has not started.
        is_earlier: Whether it is from another experiment or a file.
        stopped_at: Step after which early stopping ended it; None if it was not stopped, or if that is unknown.
    """

    name: str
    outcome: TrialOutcome
    assignments: Mapping[str, str]
    objective: float = math.nan
    seconds: float = math.nan
    others: tuple[float, ...] = ()
    violations: tuple[float, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    start_time: str = ""
    is_earlier: bool = False
    stopped_at: int | None = None

    @property
    def source(self) -> str:
        """The experiment of an earlier trial; empty for one from a file."""
        return self.labels.get(EXPERIMENT_LABEL, "")

    @property
    def values(self) -> tuple[float, ...]:
        return (self.objective, *self.others)

    @property
    def is_feasible(self) -> bool:
        """Whether every constraint is known to hold."""
        return all(violation <= 0 for violation in self.violations)

    def number(self, label: str) -> int:
        """Return the number in a label that an algorithm assigned; -1 if it has none."""
        text = self.labels.get(label, "")
        return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else -1


@dataclass(frozen=True, slots=True)
class Proposal:
    """A suggestion with labels or a name besides its point.

    Attributes:
        assignments: Text by parameter name, in the order in which it is sent. Parameters that a condition makes absent
            are removed before sending.
        labels: For the trial; they come back with it.
        trial_name: Of the trial; empty leaves the name to the controller.
    """

    assignments: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    trial_name: str = ""


class AwaitingTrials(Exception):  # noqa: N818  # no error: a step of the search
    """Raised by `Algorithm.suggest` if the next suggestion depends on running trials."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A validated search problem: one experiment.

    Attributes:
        maximize: Direction; an unknown objective type means minimize. With several objectives, that of the first.
        settings: Typed values of the algorithm's settings.
        max_trial_count: The budget; None if unlimited.
        directions: For each objective whether it is maximized: one entry, or more with several objectives.
        parallel: Number of trials that run at once; 0 if unknown.
        stops_early: Whether early stopping may end trials before their values are final.
        nas: The search space of an architecture search, instead of parameters.
        fixed: Points of trials that the user chose, which run before all others.
    """

    experiment: str
    space: SearchSpace
    maximize: bool
    settings: Settings
    max_trial_count: int | None = None
    directions: tuple[bool, ...] = (False,)
    constraints: tuple[MetricConstraint, ...] = ()
    parallel: int = 0
    stops_early: bool = False
    nas: NasConfig | None = None
    fixed: tuple[Point, ...] = ()

    @classmethod
    def of(
        cls, experiment: str, spec: ExperimentSpec, info: AlgorithmInfo, *, allow_no_parameters: bool = False
    ) -> Problem:
        """Build the problem from an experiment.

        Args:
            allow_no_parameters: Whether the space may be empty, as when only settings are checked.

        Raises:
            InvalidError: The parameters, the architecture's search space or the settings are wrong.
        """
        if info.graph_fields:
            from katib.model.architecture import check_architecture

            errors = list(check_architecture(spec.nas_config or NasConfig(), info.graph_fields))
            if errors:
                raise InvalidError(errors)
        elif spec.nas_config is not None and not spec.parameters:
            cause, remedy = f"{info.name} does not search architectures", "name enas or darts"
            raise invalid("spec.algorithm.algorithmName", cause, remedy, "algorithm-nas")
        algorithm = spec.algorithm or AlgorithmSpec()
        objective = spec.objective or ObjectiveSpec()
        parameters = with_free_resource(algorithm.algorithm_settings, spec.parameters)
        may_be_empty = allow_no_parameters or spec.nas_config is not None
        space = SearchSpace(())
        if parameters or not may_be_empty:
            space = SearchSpace.of(parameters, constraints=spec.parameter_constraints)
        fixed = (space.nearest((a.name, a.value) for a in trial.parameter_assignments) for trial in spec.initial_trials)
        return cls(
            experiment=experiment,
            space=space,
            maximize=objective.terms[0].type == ObjectiveType.MAXIMIZE,
            settings=read_settings(info, algorithm.algorithm_settings),
            max_trial_count=spec.max_trial_count,
            directions=tuple(term.type == ObjectiveType.MAXIMIZE for term in objective.terms),
            constraints=objective.constraints,
            parallel=spec.parallel_trial_count or 0,
            stops_early=spec.early_stopping is not None,
            nas=spec.nas_config,
            fixed=tuple(point for point in fixed if point is not None),
        )

    @property
    def seed(self) -> str:
        """The setting `seed` or `random_state`, by default the experiment's name.

        So an experiment without a seed continues unchanged when its service restarts, and two experiments differ. The
        price: the same unseeded file under the same name repeats the same search.
        """
        given = self.settings.get("seed", self.settings.get("random_state"))
        return f"name {self.experiment}" if given is None else f"seed {given}"

    @property
    def is_seeded(self) -> bool:
        return self.settings.get("seed", self.settings.get("random_state")) is not None

    def random(self, k: int) -> Random:
        """Return the random source of the k-th suggestion."""
        return Random(f"{self.seed}/{k}")

    def seed_of(self, k: int) -> int:
        """Return a 32-bit seed for the k-th suggestion, for libraries that need a number."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{k}".encode()).digest()[:4])


class Rules:
    """Checks that an algorithm makes before a search."""

    @classmethod
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        """Return errors of the problem for this algorithm; settings and parameters are checked already."""
        del problem
        return ()

    @classmethod
    def check_before_start(cls, problem: Problem) -> Sequence[FieldError]:
        """Return errors that only a validation reports: Katib's service of that name gives suggestions despite them."""
        del problem
        return ()


class Algorithm(Rules, ABC):
    """An algorithm for one experiment.

    Calls of one object never overlap; different objects are used by different threads at once.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abstractmethod
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Point | Proposal]:
        """Yield suggestions number first, first + 1, ..., first + count - 1.

        Points may be complete: values of absent parameters are removed before sending. Fewer points mean that the
        search space is exhausted. The caller may stop iterating at any time.

        Args:
            trials: All trials so far, in the order above. Empty if the algorithm declares that it reads no history.
            first: Number of suggestions given before.

        Raises:
            NotYet: More will follow once a pending trial has ended; raised by the iterator after the last available.
        """

    def ahead(self, *, first: int, count: int) -> Iterator[Proposal]:
        """Yield the suggestions that `suggest` withheld, for a caller that needs all of them and has no running trial.

        Such a caller would repeat its request forever: no trial can end and change the answer.
        """
        del first, count
        return iter(())

    def explain(self) -> str:
        """Return one sentence on a choice and its reason; empty if there was no choice. Called after `suggest`."""
        return ""

    def reply_settings(self) -> Mapping[str, str]:
        """Return the settings to send with suggestions, as Katib's service does. Called after `suggest`.

        They return with the next request. Those that the user did not set must be in `AlgorithmInfo.echoed`, and
        nothing may depend on them.
        """
        return {}


class StatelessAlgorithm(Algorithm):
    """An algorithm whose k-th suggestion depends on k alone, at constant cost."""

    @abstractmethod
    def point(self, k: int) -> Point | None:
        """Return the k-th suggestion; None if the sequence has ended."""

    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Point]:
        """Yield the points of these numbers, up to the end of the sequence."""
        del trials
        for k in range(first, first + count):
            point = self.point(k)
            if point is None:
                return
            yield point
