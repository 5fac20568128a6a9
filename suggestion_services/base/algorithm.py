"""The interface of an algorithm: a problem and past trials in, points out. No wire, no process, no clock.

The same object works in a notebook and behind gRPC:

    problem = Problem.of("demo", experiment.spec, INFO)
    for point in Tpe(problem).suggest(trials, first=len(trials), count=2): ...

Theory of operation: a suggestion is a function of (problem, past trials, k), where k counts the suggestions of the
experiment from 0. Whatever an algorithm keeps between calls is a cache of that function, never a memory. So a restarted
service answers as the undisturbed one would, a repeated request gets the same answer, and nothing needs saving. Past
trials come sorted by a hash of their assignments: times and list orders differ between runs, and names between
experiments with the same seed, so nothing is decided by those.
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
from katib.model.architecture import check_architecture
from katib.model.names import EXPERIMENT_LABEL
from katib.model.space import Point, SearchSpace
from katib.model.types import AlgorithmSpec, ExperimentSpec, MetricConstraint, NasConfig, ObjectiveSpec, ObjectiveType
from suggestion_services.base.settings import Settings, read_settings


class Outcome(Enum):
    """What a search learns from a past trial."""

    PENDING = "pending"
    """It has been created or runs: its point is taken."""
    MEASURED = "measured"
    """It ended with a finite objective value, also when it was stopped early."""
    BAD = "bad"
    """It failed, diverged to NaN or infinity, or was stopped early without a value: worse than every measured one."""
    SILENT = "silent"
    """It ended without saying anything about its point: killed from outside, or its metric could not be read."""


@dataclass(frozen=True, slots=True)
class PastTrial:
    """A trial as an algorithm sees it.

    Attributes:
        name: Unique within the experiment.
        outcome: What a search learns from it.
        assignments: Text by parameter name. It may lack parameters, or hold values outside the space: trials can come
            from an earlier version of the experiment or from another service.
        objective: Value of the objective metric; NaN unless MEASURED, and then finite.
        seconds: Duration from start to completion; NaN when unknown.
        others: Values of the further objectives, where there are several; finite where MEASURED, NaN otherwise.
        violations: For each constraint how far its metric is beyond its bounds: 0.0 within them, NaN where unread.
        labels: Those that the algorithm gave the trial.
        start_time: RFC 3339; empty when it has not started.
        is_earlier: Whether it is from another experiment or a file.
    """

    name: str
    outcome: Outcome
    assignments: Mapping[str, str]
    objective: float = math.nan
    seconds: float = math.nan
    others: tuple[float, ...] = ()
    violations: tuple[float, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    start_time: str = ""
    is_earlier: bool = False

    @property
    def source(self) -> str:
        """The experiment that an earlier trial is from; empty for one from a file."""
        return self.labels.get(EXPERIMENT_LABEL, "")

    @property
    def values(self) -> tuple[float, ...]:
        """The values of all objectives."""
        return (self.objective, *self.others)

    @property
    def is_feasible(self) -> bool:
        """Whether every constraint is known to hold."""
        return all(violation == 0 for violation in self.violations)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A suggestion that says more than its point.

    Attributes:
        assignments: Text by parameter name, in the order in which it is sent. Those of parameters that a condition
            makes absent are left out on the way.
        labels: For the trial; they come back with it.
        trial_name: Of the trial; empty leaves the name to the controller.
    """

    assignments: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    trial_name: str = ""


class NotYet(Exception):  # noqa: N818  # no error: a step of the search
    """The next suggestion depends on trials that are still running. Raised by `Algorithm.suggest`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What to search and how: one experiment, checked.

    Attributes:
        experiment: Its name.
        space: Its parameters.
        maximize: Direction; an unknown objective type means minimize. With several objectives, that of the first.
        settings: Typed values of the algorithm's settings.
        max_trial_count: The budget; None when there is none.
        directions: For each objective whether it is maximized: one entry, or more with several objectives.
        constraints: Bounds on metrics.
        parallel: How many trials run at once; 0 when it was not said.
        nas: The search space of an architecture search, in place of parameters.
    """

    experiment: str
    space: SearchSpace
    maximize: bool
    settings: Settings
    max_trial_count: int | None = None
    directions: tuple[bool, ...] = (False,)
    constraints: tuple[MetricConstraint, ...] = ()
    parallel: int = 0
    nas: NasConfig | None = None

    @classmethod
    def of(
        cls, experiment: str, spec: ExperimentSpec, info: AlgorithmInfo, *, allow_no_parameters: bool = False
    ) -> Problem:
        """Build the problem from an experiment.

        Args:
            experiment: Its name.
            spec: Its specification.
            info: The algorithm.
            allow_no_parameters: Whether the space may be empty, as it is when only settings are to be checked.

        Raises:
            InvalidError: The parameters, the architecture's search space or the settings are wrong.
        """
        if info.graph_fields:
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
        return cls(
            experiment=experiment,
            space=SearchSpace.of(parameters) if parameters or not may_be_empty else SearchSpace(()),
            maximize=objective.terms[0].type == ObjectiveType.MAXIMIZE,
            settings=read_settings(info, algorithm.algorithm_settings),
            max_trial_count=spec.max_trial_count,
            directions=tuple(term.type == ObjectiveType.MAXIMIZE for term in objective.terms),
            constraints=objective.constraints,
            parallel=spec.parallel_trial_count or 0,
            nas=spec.nas_config,
        )

    @property
    def seed(self) -> str:
        """The setting `seed`, or `random_state`, or else the experiment's name.

        So an experiment without a seed still continues as if nothing had happened when its service restarts, and two
        experiments differ. The price: the same unseeded file under the same name searches the same way again.
        """
        given = self.settings.get("seed", self.settings.get("random_state"))
        return f"name {self.experiment}" if given is None else f"seed {given}"

    @property
    def is_seeded(self) -> bool:
        """Whether the user gave a seed."""
        return self.settings.get("seed", self.settings.get("random_state")) is not None

    def random(self, k: int) -> Random:
        """Return the random source of the k-th suggestion."""
        return Random(f"{self.seed}/{k}")

    def seed_of(self, k: int) -> int:
        """Return 32 bits for libraries that want a number, for the k-th suggestion."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{k}".encode()).digest()[:4])


class Rules:
    """What an algorithm refuses."""

    @classmethod
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        """Return what this algorithm cannot search, beyond settings and parameters, which are checked already."""
        del problem
        return ()

    @classmethod
    def check_before_start(cls, problem: Problem) -> Sequence[FieldError]:
        """Return what only a validation refuses: Katib's service of that name gives suggestions all the same."""
        del problem
        return ()


class Algorithm(Rules, ABC):
    """One algorithm at work on one experiment.

    Calls of one object never overlap; different objects are used by different threads at once.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abstractmethod
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Point | Proposal]:
        """Yield suggestions number first, first + 1, ..., first + count - 1.

        Points may be whole: the values of absent parameters are left out on the way. Fewer points mean that the search
        space has no more. The caller may stop taking them at any time.

        Args:
            trials: All trials so far, sorted as said above. Empty when the algorithm declares that it reads no history.
            first: How many suggestions were given before.
            count: How many are wanted now.

        Raises:
            NotYet: There are more once a trial that is pending now has ended; from the iterator, after those there are.
        """

    def ahead(self, *, first: int, count: int) -> Iterator[Proposal]:
        """Yield what `suggest` left out, for a caller that takes no fewer than it asks for and has no trial running.

        Such a caller would ask for as many forever: there is no trial whose end could change the answer.
        """
        del first, count
        return iter(())

    def explain(self) -> str:
        """Return one sentence on what was chosen, and why; empty when there was no choice. Asked after `suggest`."""
        return ""

    def reply_settings(self) -> Mapping[str, str]:
        """Return the settings to send along with suggestions, as Katib's service does. Called after `suggest`.

        They come back with the next request. Those that are not the user's have to be among `AlgorithmInfo.echoed`, and
        nothing may depend on them.
        """
        return {}


class StatelessAlgorithm(Algorithm):
    """An algorithm whose k-th suggestion depends on k alone: as cheap after ten thousand trials as at the first."""

    @abstractmethod
    def point(self, k: int) -> Point | None:
        """Return the k-th suggestion; None when there is none and will be none later."""

    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Point]:
        """Yield the points of these numbers, up to the first that does not exist."""
        del trials
        for k in range(first, first + count):
            point = self.point(k)
            if point is None:
                return
            yield point
