"""Asynchronous successive halving, as a stopping rule.

Notation: eta: `reduction_factor`; rungs: resources r, r * eta, r * eta^2, ... at which trials are compared; n: number
of trials that have reached a rung.
Source: [Li2020] A System for Massively Parallel Hyperparameter Tuning, MLSys 2020, sections 3 and 4: halving without
waiting for a whole rung. There a trial is paused and promoted later; trials that cannot be paused are stopped instead,
as in other tools that run them as processes.

A trial at a rung continues while it is among the best n // eta of the trials that reached the rung (at least one).
Running, ended and stopped trials count.

Differs from the paper: a trial that passed a rung is compared again when others reach it, since it may have been among
the first there. It is stopped when its best cost so far, with all it has spent since, is still worse than the best
share's cost at the rung. So the best trial of a rung is never stopped, and the order of the trials does not matter. A
cost at a rung is the best one up to it, as in Katib's rules, so one noisy reading stops no trial.

NaN policy: such readings never help; a trial without any usable reading at a rung ranks last there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from katib.errors import FieldError
from suggestion_services.base.settings import Settings
from suggestion_services.early_stopping.algorithm import (
    SETTINGS_PATH,
    StoppingAlgorithm,
    StoppingProblem,
    StoppingVerdict,
    running,
)
from suggestion_services.early_stopping.curves import CostCurve


class AshaStopping(StoppingAlgorithm):
    """Stops a trial that is not among the best share at its rung."""

    def __init__(self, problem: StoppingProblem) -> None:
        super().__init__(problem)
        settings = problem.settings
        self._factor = settings.whole("reduction_factor", 3)
        self._smallest = settings.whole("min_resource", 1)
        self._largest = settings.whole("max_resource", 0)
        self._grace = settings.whole("grace", 0)

    @classmethod
    def check(cls, settings: Settings) -> Sequence[FieldError]:
        """Check that the largest resource is above the smallest, so that there is a rung."""
        low, high = settings.whole("min_resource", 1), settings.get("max_resource")
        if high is None or float(high) > low:
            return ()
        cause = f"{high} is not above min_resource, which is {low}"
        return (FieldError(f"{SETTINGS_PATH}.max_resource", cause, "raise it or leave it out", "setting-range"),)

    def judge(self, curves: Sequence[CostCurve]) -> list[StoppingVerdict]:
        """Compare every running trial at the highest rung that it has reached."""
        return self.compared(curves, Ladder(self._smallest, self._factor, self._largest or math.inf))

    def compared(self, curves: Sequence[CostCurve], ladder: Ladder, of: str = "") -> list[StoppingVerdict]:
        """Return the verdicts of comparing trials at the rungs of a ladder.

        Args:
            curves: Curves of the trials.
            ladder: The rungs.
            of: The group of these trials, as the end of a sentence.
        """
        standings = RungCosts(curves, self._factor)
        verdicts = []
        for curve in running(curves):
            rung = ladder.reached(curve.resource)
            if rung is None or curve.resource < self._grace:
                continue
            bar = standings.bar(rung)
            if curve.best > bar.cost:
                verdicts.append(self.worse_best(curve, bar.cost, bar.whose + of))
        return verdicts


# --- rungs, which Hyperband uses too ----------------------------------------------------------------------------------


_SHARES = {2: "half", 3: "third", 4: "quarter"}


@dataclass(frozen=True, slots=True)
class Ladder:
    """A geometric sequence of rungs.

    Attributes:
        first: The lowest rung.
        factor: Ratio of two rungs, at least 2.
        below: Exclusive upper limit: stopping a trial at its end saves nothing.
    """

    first: int
    factor: int
    below: float = math.inf

    def reached(self, resource: int) -> int | None:
        """Return the highest rung up to a resource; None below the first one."""
        if resource < self.first or self.first >= self.below:
            return None
        rung = self.first
        while rung * self.factor <= resource and rung * self.factor < self.below:
            rung *= self.factor
        return rung


@dataclass(frozen=True, slots=True)
class StoppingBar:
    """The cost that a trial must reach to continue.

    Attributes:
        cost: The upper limit.
        whose: Its origin, in words.
    """

    cost: float
    whose: str


class RungCosts:
    """The costs of trials at rungs; each rung is sorted on first use."""

    def __init__(self, curves: Sequence[CostCurve], factor: int) -> None:
        self._curves = curves
        self._factor = factor
        self._bars: dict[int, StoppingBar] = {}

    def bar(self, rung: int) -> StoppingBar:
        """Return the cost of the last trial that continues beyond a rung that at least one trial has reached."""
        if rung not in self._bars:
            costs = sorted(curve.best_by(rung) for curve in self._curves if len(curve) and curve.resource >= rung)
            kept = max(len(costs) // self._factor, 1)
            whose = self._words(kept, len(costs))
            self._bars[rung] = StoppingBar(costs[kept - 1], whose)
        return self._bars[rung]

    def _words(self, kept: int, count: int) -> str:
        if kept == 1:
            return f"the best of {count} trials"
        share = _SHARES.get(self._factor, f"{kept}")
        return f"the best {share} of {count} trials"
