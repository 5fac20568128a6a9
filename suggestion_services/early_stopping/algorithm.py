"""The interface of an early stopping algorithm: a problem and curves in, verdicts out. No wire, no log, no clock.

The same object works in a notebook and behind gRPC:

    problem = StoppingProblem("loss", maximize=False, settings=Settings({"reduction_factor": 3}))
    verdicts = Asha(problem).judge([Curve.of("a", [0.9, 0.8]), Curve.of("b", [0.4, 0.2])])

Laws: verdicts are a function of problem and curves. The order of the curves does not matter, judging twice gives the
same result, and state is only a cache, so a restarted service continues unchanged. Only running trials get a verdict.
Each algorithm documents which other curves it uses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from katib.errors import FieldError, InvalidError
from katib.model.algorithms import AlgorithmInfo
from katib.model.types import AlgorithmSetting
from suggestion_services.base.settings import Settings, read_settings
from suggestion_services.early_stopping.curves import CostCurve, CurveState

SETTINGS_PATH = "spec.earlyStopping.algorithmSettings"

_DIGITS = (4, 6, 9)
"""Significant digits of numbers in sentences; more if two different numbers would look alike."""


@dataclass(frozen=True, slots=True)
class StoppingVerdict:
    """A running trial to stop.

    Attributes:
        trial_name: The trial.
        reason: One sentence.
        value: The value of the objective that decided, as text.
        resource: Resource spent by the trial: its newest step, or the number of its readings.
    """

    trial_name: str
    reason: str
    value: str
    resource: int


@dataclass(frozen=True, slots=True)
class StaticRule:
    """A rule for Katib's controller: stop a trial whose best reading is worse than a value at one reading.

    Attributes:
        cost: The value, to minimise.
        start_step: Number of the reading.
    """

    cost: float
    start_step: int


@dataclass(frozen=True, slots=True)
class StoppingProblem:
    """The metric, direction and settings of early stopping.

    Attributes:
        maximize: Its direction; an unknown objective type means minimise.
        settings: Typed values of the algorithm's settings.
    """

    metric: str
    maximize: bool
    settings: Settings

    def value_of(self, cost: float) -> float:
        return -cost if self.maximize else cost

    def shown(self, cost: float) -> str:
        """Return the objective value of a cost as text."""
        return f"{self.value_of(cost):.4g}"

    def shown_apart(self, cost: float, other: float) -> tuple[str, str]:
        """Return the objective values of two costs as text, with enough digits to tell them apart."""
        pairs = ((f"{self.value_of(cost):.{n}g}", f"{self.value_of(other):.{n}g}") for n in _DIGITS)
        return next(
            (pair for pair in pairs if pair[0] != pair[1]), (str(self.value_of(cost)), str(self.value_of(other)))
        )


class StoppingAlgorithm(ABC):
    """An early stopping algorithm for one experiment. Calls of one object never overlap."""

    def __init__(self, problem: StoppingProblem) -> None:
        self.problem = problem

    @classmethod
    def check(cls, settings: Settings) -> Sequence[FieldError]:
        """Return the conflicts between settings; each one is checked already."""
        del settings
        return ()

    @abstractmethod
    def judge(self, curves: Sequence[CostCurve]) -> list[StoppingVerdict]:
        """Return the running trials to stop, in the order of their curves."""

    def static_rule(self) -> StaticRule | None:
        """Return an equivalent rule for a controller that cannot call `judge`; None if there is none."""
        return None

    def verdict(self, curve: CostCurve, cost: float, because: str) -> StoppingVerdict:
        """Return the verdict over a trial for one of its costs; the reason starts with metric, value and place."""
        text = str(self.problem.value_of(cost))
        return StoppingVerdict(curve.trial_name, f"{self.problem.metric} {because}", text, curve.resource)

    def worse_best(self, curve: CostCurve, bar: float, whose: str) -> StoppingVerdict:
        """Return the verdict over a trial whose best cost so far is above a bar.

        Args:
            curve: The trial's curve.
            bar: The cost to reach.
            whose: Origin of the bar, as the end of the sentence.
        """
        best = curve.best
        if best == float("inf"):
            because = f"has had no usable value up to {curve.place}, where {self.problem.shown(bar)} is {whose}"
            return self.verdict(curve, float("nan"), because)
        mine, theirs = self.problem.shown_apart(best, bar)
        where = f"at {curve.place}" if curve.costs[-1] == best else f"at best up to {curve.place}"
        return self.verdict(curve, best, f"{mine} {where} is worse than {theirs}, {whose}")


def running(curves: Sequence[CostCurve]) -> Iterator[CostCurve]:
    return (curve for curve in curves if curve.standing is CurveState.RUNNING and len(curve))


def settings_of(cls: type[StoppingAlgorithm], info: AlgorithmInfo, given: Sequence[AlgorithmSetting]) -> Settings:
    """Return the settings of an early stopping algorithm.

    Raises:
        InvalidError: Unknown names, wrong values or conflicts, one error each.
    """
    settings = read_settings(info, given, path=SETTINGS_PATH)
    errors = cls.check(settings)
    if errors:
        raise InvalidError(errors)
    return settings
