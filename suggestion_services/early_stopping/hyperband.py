"""Hyperband's brackets, as a stopping rule.

Notation: eta: `reduction_factor`; R: the largest resource of a trial; r: `min_resource`; s: the bracket, 0 to s_max.
Sources: [Li2018] Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization, JMLR 18, algorithm 1;
[Li2020] A System for Massively Parallel Hyperparameter Tuning, MLSys 2020: brackets that need not wait.

Bracket s starts to compare at r * eta^(s_max - s), so the last one compares early and the first one near the end: a
trial with a slow start has a chance in some bracket. A trial is compared only with trials of its bracket, as in `asha`.

Differs from the paper: trials come one by one, so a bracket is not filled and emptied. A hash of its name assigns a
trial to a bracket, in the proportions of the paper's numbers of configurations. R is `max_resource`, by default the
largest resource of a trial that has succeeded; before one has, nothing is stopped.

NaN policy: as in `asha`.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from suggestion_services.early_stopping.algorithm import StoppingProblem, StoppingVerdict
from suggestion_services.early_stopping.asha import AshaStopping, Ladder
from suggestion_services.early_stopping.curves import CostCurve, CurveState


@dataclass(frozen=True, slots=True)
class BracketScheme:
    """The brackets of a largest resource.

    Attributes:
        smallest: r.
        largest: R, at least r.
        factor: eta.
    """

    smallest: int
    largest: int
    factor: int

    @property
    def last(self) -> int:
        """s_max: the number of brackets less one."""
        s, resource = 0, self.smallest * self.factor
        while resource <= self.largest:
            s, resource = s + 1, resource * self.factor
        return s

    def shares(self) -> list[int]:
        """Return the number of trials of each bracket, from bracket 0 on: ceil((s_max + 1) / (s + 1) * eta^s)."""
        count = self.last + 1
        return [math.ceil(count * self.factor**s / (s + 1)) for s in range(count)]

    def bracket_of(self, trial_name: str) -> int:
        shares = self.shares()
        place = zlib.crc32(trial_name.encode()) % sum(shares)
        for bracket, share in enumerate(shares):
            if place < share:
                return bracket
            place -= share
        raise AssertionError("the place is below the sum of all shares")

    def ladder(self, bracket: int) -> Ladder:
        return Ladder(self.smallest * self.factor ** (self.last - bracket), self.factor, self.largest)


class HyperbandStopping(AshaStopping):
    """Stops a trial that is not among the best share of its bracket; some brackets compare later than others."""

    def __init__(self, problem: StoppingProblem) -> None:
        super().__init__(problem)
        self._known: tuple[BracketScheme | None, dict[str, int]] = None, {}

    def judge(self, curves: Sequence[CostCurve]) -> list[StoppingVerdict]:
        """Compare every running trial at the highest rung of its bracket that it has reached."""
        ended = (curve.resource for curve in curves if curve.standing is CurveState.SUCCEEDED)
        largest = self._largest or max(ended, default=0)
        if largest < self._smallest:
            return []
        brackets = BracketScheme(self._smallest, largest, self._factor)
        members: dict[int, list[CostCurve]] = {}
        for curve in curves:
            members.setdefault(self._bracket_of(brackets, curve.trial_name), []).append(curve)
        found = {
            verdict.trial_name: verdict
            for s, group in members.items()
            for verdict in self.compared(group, brackets.ladder(s), f" of bracket {s}")
        }
        return [found[curve.trial_name] for curve in curves if curve.trial_name in found]

    def _bracket_of(self, brackets: BracketScheme, trial_name: str) -> int:
        if self._known[0] != brackets:
            self._known = brackets, {}
        known = self._known[1]
        if trial_name not in known:
            known[trial_name] = brackets.bracket_of(trial_name)
        return known[trial_name]
