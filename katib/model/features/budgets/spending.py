"""Resource use of an experiment's trials, updated event by event, and its comparison with the budget.

Law: the recorded use of ended trials equals the sum over all existing ones, so a restart changes nothing. Trials that
were removed to run again are counted in an annotation of their experiment (`SPENT`).
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from katib.model.features.budgets.amounts import Budget
from katib.model.features.budgets.annotations import CUT_REASON, HOLDS, HOURS
from katib.model.features.feature import Progress
from katib.model.trials import ran_seconds, trial_state
from katib.model.types import Trial, TrialState

_EPSILON = 1e-9

Amounts = dict[str, float]


@dataclass(frozen=True, slots=True)
class Uses:
    """Resource use of trials up to now.

    Attributes:
        seconds: Time during which at least one trial ran.
        held: Seconds of each resource held by ended trials and by waiting ones that ran before.
        waiting: Previous run time and future resources of each trial that is not running yet, or not now.
        median_seconds: Median run time of trials that ended by themselves; None if there are none.
        longest_seconds: Longest run time of a trial that has not ended by itself: a lower bound for a full run.
        cut: Run time by name of each trial that the budget ended.
    """

    seconds: float
    held: Mapping[str, float]
    running: tuple[tuple[float, Mapping[str, float]], ...]
    waiting: tuple[tuple[float, Mapping[str, float]], ...]
    median_seconds: float | None
    usual: Mapping[str, float]
    longest_seconds: float = 0.0
    cut: Mapping[str, float] = field(default_factory=dict)

    def used(self, budget: Budget, unit: str) -> float:
        held: Amounts = defaultdict(float, self.held)
        for seconds, holds in self.running:
            _add(held, holds, seconds)
        return budget.used(unit, self.seconds, held)

    def is_spent(self, budget: Budget) -> bool:
        return any(self.used(budget, unit) >= limit - _EPSILON for unit, limit in budget.limits.items())

    def seconds_left(self, budget: Budget) -> float:
        """Return the seconds until the budget is spent if no trial starts and none ends; infinite if never."""
        rate: Amounts = defaultdict(float)
        for _, holds in self.running:
            _add(rate, holds, 1.0)
        left = math.inf
        for unit, limit in budget.limits.items():
            each = budget.used(unit, float(bool(self.running)), rate)
            if each > 0:
                left = min(left, (limit - self.used(budget, unit)) / each)
        return max(left, 0.0)

    def room(self, budget: Budget) -> float:
        """Return how many trials can start now and end within the budget, by the median run time of ended ones.

        The expected remaining use of running and waiting trials is set aside. Until a trial has ended, half of the
        longest run time is the minimum for a useful start; the room is infinite until a trial has run.
        """
        expected = self.longest_seconds / 2 if self.median_seconds is None else self.median_seconds
        to_come: Amounts = defaultdict(float)
        for seconds, holds in (*self.running, *self.waiting):
            _add(to_come, holds, max(expected - seconds, 0.0))
        each: Amounts = defaultdict(float)
        _add(each, self.usual, expected)
        room = math.inf
        for unit, limit in budget.limits.items():
            left = limit - self.used(budget, unit)
            need = budget.used(unit, expected, each)
            if unit == HOURS:  # parallel trials share it
                room = room if need <= left + _EPSILON else 0.0
            elif need > 0:
                room = min(room, max(math.floor((left - budget.used(unit, 0.0, to_come)) / need + _EPSILON), 0))
        return room


@dataclass(slots=True)
class Spending:
    """Adds up the use of trials that have the annotation of their resources."""

    _ended: dict[str, tuple[float, Mapping[str, float]]] = field(default_factory=dict)  # or waiting after a run
    _unfinished: dict[str, float] = field(default_factory=dict)  # of these: not ended by themselves, and their run time
    _cut: dict[str, float] = field(default_factory=dict)  # of these: ended by the budget
    _running: dict[str, tuple[Trial, Mapping[str, float]]] = field(default_factory=dict)
    _waiting: dict[str, Mapping[str, float]] = field(default_factory=dict)
    _held: Amounts = field(default_factory=lambda: defaultdict(float))
    _durations: list[float] = field(default_factory=list)
    _usual: Mapping[str, float] = field(default_factory=dict)

    def add(self, trial: Trial) -> None:
        state = trial_state(trial)
        holds = self._usual = HOLDS.read(trial.metadata.annotations)
        if state is TrialState.RUNNING:
            self._running[trial.name] = trial, holds
            return
        if state is TrialState.PENDING:
            self._waiting[trial.name] = holds
        if (seconds := ran_seconds(trial)) is None:
            return
        self._ended[trial.name] = seconds, holds
        _add(self._held, holds, seconds)
        if any(one.reason == CUT_REASON and one.status == "True" for one in trial.status.conditions):
            self._cut[trial.name] = seconds
        if state in (TrialState.PENDING, TrialState.KILLED) or trial.name in self._cut:
            self._unfinished[trial.name] = seconds
        else:
            insort(self._durations, seconds)

    def remove(self, name: str) -> None:
        self._running.pop(name, None)
        self._waiting.pop(name, None)
        if name not in self._ended:
            return
        seconds, holds = self._ended.pop(name)
        _add(self._held, holds, -seconds)
        self._cut.pop(name, None)
        if self._unfinished.pop(name, None) is None:
            del self._durations[bisect_left(self._durations, seconds)]

    def uses(self, progress: Progress, removed: Mapping[str, float]) -> Uses | None:
        """Return the resource use of trials; None if nothing was counted.

        Args:
            progress: Run times of the experiment and its trials.
            removed: Seconds of each resource of trials that were removed.
        """
        if not self._usual and not removed:
            return None
        running = tuple((progress.seconds_of(trial), holds) for trial, holds in self._running.values())
        count, held = len(self._durations), dict(self._held)
        _add(held, removed, 1.0)
        return Uses(
            seconds=progress.run_seconds,
            held=held,
            running=running,
            waiting=tuple((self._ended.get(name, (0.0, {}))[0], holds) for name, holds in self._waiting.items()),
            median_seconds=self._durations[count // 2] if count else None,
            usual=self._usual,
            longest_seconds=max([*self._unfinished.values(), *(seconds for seconds, _ in running)], default=0.0),
            cut=dict(self._cut),
        )


def _add(total: Amounts, holds: Mapping[str, float], seconds: float) -> None:
    for name, amount in holds.items():
        total[name] = total.get(name, 0.0) + amount * seconds
