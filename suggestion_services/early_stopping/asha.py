"""Asynchronous successive halving, as a stopping rule.

Notation: eta: `reduction_factor`; rungs: resources r, r * eta, r * eta^2, ... at which trials are compared; n: number
of trials that have reached a rung.
Source: [Li2020] A System for Massively Parallel Hyperparameter Tuning, MLSys 2020, sections 3 and 4: halving without
waiting for a whole rung. There a trial is paused and promoted later; trials that cannot be paused are stopped instead,
as in other tools that run them as processes.

A trial at a rung goes on while it is among the best n // eta of those that reached the rung (at least one). All count:
running, ended and stopped ones.

Differs from the paper: a trial that passed a rung is looked at again when others reach it, since it was perhaps among
the first there. It is stopped when its best cost so far, with all it has spent since, is still worse than what the best
share had at the rung. So the best trial of a rung is never stopped, and the order in which trials come does not matter.
A cost at a rung is the best one up to it, as in Katib's rules, so one noisy reading stops no trial.

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
    Verdict,
    running,
)
from suggestion_services.early_stopping.curves import Curve


class Asha(StoppingAlgorithm):
    """Stops a trial that is not among the best share of those that have come as far."""

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

    def judge(self, curves: Sequence[Curve]) -> list[Verdict]:
        """Compare every running trial at the highest rung that it has reached."""
        return self.compared(curves, Ladder(self._smallest, self._factor, self._largest or math.inf))

    def compared(self, curves: Sequence[Curve], ladder: Ladder, of: str = "") -> list[Verdict]:
        """Return the verdicts of a comparison with each other at the rungs of a ladder.

        Args:
            curves: Of the trials.
            ladder: The rungs.
            of: What these trials are part of, as the end of a sentence.
        """
        standings = Standings(curves, self._factor)
        verdicts = []
        for curve in running(curves):
            rung = ladder.reached(curve.resource)
            if rung is None or curve.resource < self._grace:
                continue
            bar = standings.bar(rung)
            if curve.best > bar.cost:
                verdicts.append(self.worse_best(curve, bar.cost, bar.whose + of))
        return verdicts


# --- rungs, which Hyperband compares at as well -----------------------------------------------------------------------


_SHARES = {2: "half", 3: "third", 4: "quarter"}


@dataclass(frozen=True, slots=True)
class Ladder:
    """Rungs.

    Attributes:
        first: The lowest rung.
        factor: Between two rungs, at least 2.
        below: All rungs are below it: where a trial ends by itself there is nothing left to save.
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
class Bar:
    """What a trial must have reached to go on.

    Attributes:
        cost: Not to be exceeded.
        whose: Whom it belongs to, in words.
    """

    cost: float
    whose: str


class Standings:
    """The costs that trials had at rungs; each rung is sorted when it is first asked for.

    Args:
        curves: Of the trials that are compared with each other.
        factor: The reduction factor.
    """

    def __init__(self, curves: Sequence[Curve], factor: int) -> None:
        self._curves = curves
        self._factor = factor
        self._bars: dict[int, Bar] = {}

    def bar(self, rung: int) -> Bar:
        """Return the cost of the last trial that goes on beyond a rung that at least one trial has reached."""
        if rung not in self._bars:
            costs = sorted(curve.best_by(rung) for curve in self._curves if len(curve) and curve.resource >= rung)
            kept = max(len(costs) // self._factor, 1)
            whose = self._words(kept, len(costs))
            self._bars[rung] = Bar(costs[kept - 1], whose)
        return self._bars[rung]

    def _words(self, kept: int, count: int) -> str:
        if kept == 1:
            return f"the best of {count} trials"
        share = _SHARES.get(self._factor, f"{kept}")
        return f"the best {share} of {count} trials"
