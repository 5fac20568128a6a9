"""The interface of an early stopping algorithm: a problem and curves in, verdicts out. No wire, no log, no clock.

The same object works in a notebook and behind gRPC:

    problem = StoppingProblem("loss", maximize=False, settings=Settings({"reduction_factor": 3}))
    verdicts = Asha(problem).judge([Curve.of("a", [0.9, 0.8]), Curve.of("b", [0.4, 0.2])])

Laws: verdicts are a function of problem and curves. The order of the curves does not matter, judging twice gives the
same, and nothing is remembered but caches, so a restarted service goes on as the undisturbed one would. Only running
trials get a verdict. Which curves count beside that of the judged trial is said by each algorithm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from katib.errors import FieldError, InvalidError
from katib.model.algorithms import AlgorithmInfo
from katib.model.types import AlgorithmSetting
from suggestion_services.base.settings import Settings, read_settings
from suggestion_services.early_stopping.curves import Curve, Standing

SETTINGS_PATH = "spec.earlyStopping.algorithmSettings"

_DIGITS = (4, 6, 9)
"""Significant digits of numbers in sentences; more where fewer would show two different ones alike."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A running trial that should be stopped.

    Attributes:
        trial_name: Which.
        reason: One sentence.
        value: The value of the objective that decided, as text.
        resource: What the trial had spent: its newest step, or the number of its readings.
    """

    trial_name: str
    reason: str
    value: str
    resource: int


@dataclass(frozen=True, slots=True)
class StaticRule:
    """A rule that Katib's controller understands: stop a trial whose best reading is worse than a value at one reading.

    Attributes:
        cost: The value, to minimise.
        start_step: At which reading of the trial.
    """

    cost: float
    start_step: int


@dataclass(frozen=True, slots=True)
class StoppingProblem:
    """What is judged and how.

    Attributes:
        metric: Name of the objective metric.
        maximize: Its direction; an unknown objective type means minimise.
        settings: Typed values of the algorithm's settings.
    """

    metric: str
    maximize: bool
    settings: Settings

    def value_of(self, cost: float) -> float:
        """Return the value of the objective that a cost stands for."""
        return -cost if self.maximize else cost

    def shown(self, cost: float) -> str:
        """Return the value of a cost in words."""
        return f"{self.value_of(cost):.4g}"

    def shown_apart(self, cost: float, other: float) -> tuple[str, str]:
        """Return the values of two costs in words, with so many digits that they look different if they are."""
        pairs = ((f"{self.value_of(cost):.{n}g}", f"{self.value_of(other):.{n}g}") for n in _DIGITS)
        return next(
            (pair for pair in pairs if pair[0] != pair[1]), (str(self.value_of(cost)), str(self.value_of(other)))
        )


class StoppingAlgorithm(ABC):
    """One algorithm at work on one experiment. Calls of one object never overlap."""

    def __init__(self, problem: StoppingProblem) -> None:
        self.problem = problem

    @classmethod
    def check(cls, settings: Settings) -> Sequence[FieldError]:
        """Return what is wrong with the settings together; each for itself is checked already."""
        del settings
        return ()

    @abstractmethod
    def judge(self, curves: Sequence[Curve]) -> list[Verdict]:
        """Return which running trials should be stopped, in the order of their curves.

        Args:
            curves: Of all trials that have reported anything, each trial once.
        """

    def static_rule(self) -> StaticRule | None:
        """Return the rule for a controller that cannot ask `judge`; None when no fixed rule says the same."""
        return None

    def verdict(self, curve: Curve, cost: float, because: str) -> Verdict:
        """Return the verdict over a trial for one of its costs; the reason begins with metric, value and place."""
        text = str(self.problem.value_of(cost))
        return Verdict(curve.trial_name, f"{self.problem.metric} {because}", text, curve.resource)

    def worse_best(self, curve: Curve, bar: float, whose: str) -> Verdict:
        """Return the verdict over a trial whose best cost so far is above a bar.

        Args:
            curve: Of the trial.
            bar: Cost that it should have reached.
            whose: Whom the bar belongs to, as the end of the sentence.
        """
        best = curve.best
        if best == float("inf"):
            because = f"has had no usable value up to {curve.place}, where {self.problem.shown(bar)} is {whose}"
            return self.verdict(curve, float("nan"), because)
        mine, theirs = self.problem.shown_apart(best, bar)
        where = f"at {curve.place}" if curve.costs[-1] == best else f"at best up to {curve.place}"
        return self.verdict(curve, best, f"{mine} {where} is worse than {theirs}, {whose}")


def running(curves: Sequence[Curve]) -> Iterator[Curve]:
    """Yield the curves of running trials that have reported something."""
    return (curve for curve in curves if curve.standing is Standing.RUNNING and len(curve))


def settings_of(cls: type[StoppingAlgorithm], info: AlgorithmInfo, given: Sequence[AlgorithmSetting]) -> Settings:
    """Return the settings of an early stopping algorithm.

    Raises:
        InvalidError: Unknown names and wrong values, one error each, or they do not fit together.
    """
    settings = read_settings(info, given, path=SETTINGS_PATH)
    errors = cls.check(settings)
    if errors:
        raise InvalidError(errors)
    return settings
