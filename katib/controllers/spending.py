"""What the trials of an experiment have used, kept current event by event, and when its budget is spent.

Law: it equals what adding up all trials that exist would give, so a restart changes nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from katib.api.budgets import HOURS, Budget, read_holds
from katib.api.conditions import find_condition
from katib.api.names import HOLDS_ANNOTATION
from katib.api.trials import trial_state
from katib.api.types import Trial, TrialCondition, TrialState

_EPSILON = 1e-9

Amounts = dict[str, float]


@dataclass(frozen=True, slots=True)
class Uses:
    """What trials have used up to a moment that is still to come.

    Attributes:
        seconds: During which at least one trial ran, up to the start of the first that still runs.
        held: Seconds of each resource, of trials that have ended, and of those that wait after they ran.
        running: When each that runs was started, and what it has.
        waiting: How long each that does not run yet, or not now, ran before, and what it will have.
        median_seconds: Of those that came to their own end; None where none has.
        usual: What the newest trial has.
    """

    seconds: float
    held: Mapping[str, float]
    running: tuple[tuple[datetime, Mapping[str, float]], ...]
    waiting: tuple[tuple[float, Mapping[str, float]], ...]
    median_seconds: float | None
    usual: Mapping[str, float]

    def used(self, budget: Budget, unit: str, now: datetime) -> float:
        """Return how much of a unit of the budget is used now."""
        held: Amounts = defaultdict(float, self.held)
        for start, holds in self.running:
            _add(held, holds, max((now - start).total_seconds(), 0.0))
        since = min((start for start, _ in self.running), default=now)
        return budget.used(unit, self.seconds + max((now - since).total_seconds(), 0.0), held)

    def is_spent(self, budget: Budget, now: datetime) -> bool:
        """Return whether a limit of the budget is reached."""
        return any(self.used(budget, unit, now) >= limit - _EPSILON for unit, limit in budget.limits.items())

    def seconds_left(self, budget: Budget, now: datetime) -> float:
        """Return after how many seconds the budget is spent if no trial starts and none ends; infinite if never."""
        rate: Amounts = defaultdict(float)
        for _, holds in self.running:
            _add(rate, holds, 1.0)
        left = math.inf
        for unit, limit in budget.limits.items():
            each = budget.used(unit, float(bool(self.running)), rate)
            if each > 0:
                left = min(left, (limit - self.used(budget, unit, now)) / each)
        return max(left, 0.0)

    def room(self, budget: Budget, now: datetime) -> float:
        """Return how many trials can start now and end within the budget, by the median of those that have ended.

        What those need up to their ends that run or wait is set aside. Infinite as long as no trial has ended.
        """
        if self.median_seconds is None:
            return math.inf
        to_come: Amounts = defaultdict(float)
        for start, holds in self.running:
            _add(to_come, holds, max(self.median_seconds - (now - start).total_seconds(), 0.0))
        for seconds, holds in self.waiting:
            _add(to_come, holds, max(self.median_seconds - seconds, 0.0))
        each: Amounts = defaultdict(float)
        _add(each, self.usual, self.median_seconds)
        room = math.inf
        for unit, limit in budget.limits.items():
            left = limit - self.used(budget, unit, now)
            need = budget.used(unit, self.median_seconds, each)
            if unit == HOURS:  # trials side by side share it
                room = room if need <= left + _EPSILON else 0.0
            elif need > 0:
                room = min(room, max(math.floor((left - budget.used(unit, 0.0, to_come)) / need + _EPSILON), 0))
        return room


@dataclass(slots=True)
class Spending:
    """Adds up what trials use that say what they have."""

    _ended: dict[str, tuple[float, float, Mapping[str, float]]] = field(default_factory=dict)  # or held up, for now
    _cut: set[str] = field(default_factory=set)  # of them: killed or held up by now, so their durations say nothing
    _removed: dict[str, tuple[float, float]] = field(default_factory=dict)
    _running: dict[str, tuple[datetime, Mapping[str, float]]] = field(default_factory=dict)
    _waiting: dict[str, Mapping[str, float]] = field(default_factory=dict)
    _held: Amounts = field(default_factory=lambda: defaultdict(float))
    _durations: list[float] = field(default_factory=list)
    _starts: list[float] = field(default_factory=list)  # of stretches during which trials ran, without a gap
    _ends: list[float] = field(default_factory=list)
    _usual: Mapping[str, float] = field(default_factory=dict)

    def add(self, trial: Trial) -> None:
        """Take in a trial."""
        status = trial.status
        holds = self._usual = read_holds(trial.metadata.annotations.get(HOLDS_ANNOTATION, ""))
        until, state = status.completion_time, trial_state(trial)
        if until is None and state is TrialState.PENDING:
            until = _ran_until(trial)
            self._waiting[trial.name] = holds
        if until is None and state is TrialState.RUNNING and status.start_time is not None:
            self._running[trial.name] = status.start_time, holds
        if until is None or status.start_time is None:
            return
        start = status.start_time.timestamp()
        end = max(until.timestamp(), start)
        self._ended[trial.name] = start, end, holds
        _add(self._held, holds, end - start)
        if state in (TrialState.PENDING, TrialState.KILLED):
            self._cut.add(trial.name)
        else:
            insort(self._durations, end - start)
        if self._removed.get(trial.name) == (start, end):
            del self._removed[trial.name]
        else:
            self._cover(start, end)

    def remove(self, name: str) -> None:
        """Take a trial out."""
        self._running.pop(name, None)
        self._waiting.pop(name, None)
        if name not in self._ended:
            return
        start, end, holds = self._ended.pop(name)
        _add(self._held, holds, start - end)
        if name in self._cut:
            self._cut.remove(name)
        else:
            del self._durations[bisect_left(self._durations, end - start)]
        self._removed[name] = start, end  # covered until it is certain that it does not come again, changed

    def uses(self) -> Uses | None:
        """Return what trials have used; None where none says what it has."""
        if not self._usual:
            return None
        if self._removed:
            self._removed, self._starts, self._ends = {}, [], []
            for start, end, _ in self._ended.values():
                self._cover(start, end)
        running = tuple(self._running.values())
        first = min((began.timestamp() for began, _ in running), default=math.inf)
        stretches = zip(self._starts, self._ends, strict=True)
        count = len(self._durations)
        return Uses(
            seconds=math.fsum(max(min(end, first) - start, 0.0) for start, end in stretches),
            held=dict(self._held),
            running=running,
            waiting=tuple((self._seconds_of(name), holds) for name, holds in self._waiting.items()),
            median_seconds=self._durations[count // 2] if count else None,
            usual=self._usual,
        )

    def _seconds_of(self, name: str) -> float:
        start, end, _ = self._ended.get(name, (0.0, 0.0, {}))
        return end - start

    def _cover(self, start: float, end: float) -> None:
        """Join a stretch of time with those that it meets."""
        first, after = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < after:
            start, end = min(start, self._starts[first]), max(end, self._ends[after - 1])
        self._starts[first:after], self._ends[first:after] = [start], [end]


def _ran_until(trial: Trial) -> datetime | None:
    """Return when a trial that waits ran last, such as one that was preempted; None if it never did."""
    running = find_condition(trial.status.conditions, TrialCondition.RUNNING)
    since = None if running is None else running.last_transition_time
    return None if since == trial.status.start_time else since


def _add(total: Amounts, holds: Mapping[str, float], seconds: float) -> None:
    for name, amount in holds.items():
        total[name] = total.get(name, 0.0) + amount * seconds
