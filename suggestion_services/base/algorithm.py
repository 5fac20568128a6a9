"""The interface of an algorithm: a problem and past trials in, points out. No wire, no process, no clock.

The same object works in a notebook and behind gRPC:

    problem = Problem.of("demo", experiment.spec, INFO)
    for point in Tpe(problem).suggest(trials, first=len(trials), count=2): ...

Theory of operation: a suggestion is a function of (problem, past trials, k), where k counts the suggestions of the
experiment from 0. Whatever an algorithm keeps between calls is a cache of that function, never a memory. So a restarted
service answers as the undisturbed one would, a repeated request gets the same answer, and nothing needs saving. Past
trials come sorted by name: the only order that survives restarts, since times and list orders differ between runs.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

from katib.api.algorithms import AlgorithmInfo
from katib.api.types import AlgorithmSpec, ExperimentSpec, ObjectiveSpec, ObjectiveType
from katib.errors import FieldError
from katib.space import Point, SearchSpace
from suggestion_services.base.settings import Settings, read_settings


class Outcome(Enum):
    """What a past trial tells a search."""

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
        outcome: What it tells.
        assignments: Text by parameter name. It may lack parameters, or hold values outside the space: trials can come
            from an earlier version of the experiment or from another service.
        objective: Value of the objective metric; NaN unless MEASURED, and then finite.
        seconds: Duration from start to completion; NaN when unknown.
    """

    name: str
    outcome: Outcome
    assignments: Mapping[str, str]
    objective: float = math.nan
    seconds: float = math.nan


@dataclass(frozen=True, slots=True)
class Problem:
    """What to search and how: one experiment, checked.

    Attributes:
        experiment: Its name.
        space: Its parameters.
        maximize: Direction; an unknown objective type means minimize.
        settings: Typed values of the algorithm's settings.
        max_trial_count: The budget; None when there is none.
    """

    experiment: str
    space: SearchSpace
    maximize: bool
    settings: Settings
    max_trial_count: int | None = None

    @classmethod
    def of(cls, experiment: str, spec: ExperimentSpec, info: AlgorithmInfo) -> Problem:
        """Build the problem from an experiment.

        Raises:
            InvalidError: The parameters or settings are wrong.
        """
        algorithm = spec.algorithm or AlgorithmSpec()
        objective = spec.objective or ObjectiveSpec()
        return cls(
            experiment=experiment,
            space=SearchSpace.of(spec.parameters),
            maximize=objective.type == ObjectiveType.MAXIMIZE,
            settings=read_settings(info, algorithm.algorithm_settings),
            max_trial_count=spec.max_trial_count,
        )

    @property
    def seed(self) -> str:
        """The setting `random_state`, or else the experiment's name.

        So an experiment without a seed still continues as if nothing had happened when its service restarts, and two
        experiments differ. The price: the same unseeded file under the same name searches the same way again.
        """
        given = self.settings.get("random_state")
        return f"name {self.experiment}" if given is None else f"seed {given}"

    def random(self, k: int) -> Random:
        """Return the random source of the k-th suggestion."""
        return Random(f"{self.seed}/{k}")

    def seed_of(self, k: int) -> int:
        """Return 32 bits for libraries that want a number, for the k-th suggestion."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{k}".encode()).digest()[:4])


class Algorithm(ABC):
    """One algorithm at work on one experiment.

    Calls of one object never overlap; different objects are used by different threads at once.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @classmethod
    def check(cls, problem: Problem) -> Sequence[FieldError]:
        """Return what this algorithm cannot search, beyond settings and parameters, which are checked already."""
        del problem
        return ()

    @abstractmethod
    def suggest(self, trials: Sequence[PastTrial], *, first: int, count: int) -> Iterator[Point]:
        """Yield suggestions number first, first + 1, ..., first + count - 1.

        Fewer mean that the search space has no more points. The caller may stop taking them at any time.

        Args:
            trials: All trials so far, sorted by name. Empty when the algorithm declares that it reads no history.
            first: How many suggestions were given before.
            count: How many are wanted now.
        """


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
