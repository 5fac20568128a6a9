"""Comparison at rungs, which successive halving and Hyperband share.

Notation: eta: the reduction factor. Rungs: resources r, r * eta, r * eta^2, ... at which trials are compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from suggestion_services.early_stopping.curves import Curve

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
