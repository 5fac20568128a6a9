"""Early stopping rules, evaluated as readings arrive.

A rule is tested at reading number `start_step` of its metric and at every later one (at every reading if that is 0).
For the objective metric the best reading so far is compared, for any other the current one. A non-finite reading counts
as a reading, but is never compared and never the best. A trial should be stopped when every rule has been met at least
once, not necessarily at the same reading.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Sequence

from katib.model.metrics import MetricLog, is_usable
from katib.model.types import ComparisonType, EarlyStoppingRule, ObjectiveType

_COMPARISONS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    ComparisonType.EQUAL: (operator.eq, "equal to"),
    ComparisonType.LESS: (operator.lt, "less than"),
    ComparisonType.GREATER: (operator.gt, "greater than"),
}


class RuleBook:
    """The rules of one trial and their state.

    A rule whose value is not a number, or whose comparison is unknown, can never be met: such rules never stop a trial.

    Args:
        rules: All rules; without any the trial is never stopped.
        objective_type: `minimize` or `maximize`: the direction of the best reading.
    """

    def __init__(self, rules: Sequence[EarlyStoppingRule], objective: str, objective_type: str) -> None:
        self._open = list(rules)
        self._met: list[str] = []
        self._objective = objective
        self._better = max if objective_type == ObjectiveType.MAXIMIZE else min
        self._best: float | None = None
        self._counts: Counter[str] = Counter()
        self.verdict = ""

    @property
    def metrics(self) -> frozenset[str]:
        """Names of the metrics of rules that are not yet met."""
        return frozenset(rule.name for rule in self._open)

    def observe(self, reading: MetricLog) -> None:
        """Test the rules against another reading; sets `verdict` once all have been met."""
        self._counts[reading.name] += 1
        if not is_usable(reading.value):
            return
        current = float(reading.value)
        if reading.name == self._objective:
            self._best = current = current if self._best is None else self._better(self._best, current)
        for rule in [rule for rule in self._open if rule.name == reading.name]:
            if self._counts[rule.name] >= rule.start_step and _holds(rule, current):
                self._open.remove(rule)
                self._met.append(self._sentence(rule, current))
                self.verdict = "" if self._open else "; ".join(self._met)

    def _sentence(self, rule: EarlyStoppingRule, value: float) -> str:
        subject = f"best {rule.name} so far" if rule.name == self._objective else rule.name
        _, words = _COMPARISONS[rule.comparison]
        return f"{subject} is {value:.6g}, {words} {rule.value}, at reading {self._counts[rule.name]}"


def _holds(rule: EarlyStoppingRule, value: float) -> bool:
    if rule.comparison not in _COMPARISONS or not is_usable(rule.value):
        return False
    holds, _ = _COMPARISONS[rule.comparison]
    return holds(value, float(rule.value))
