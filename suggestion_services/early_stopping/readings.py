"""Curves from the observation log, updated with new readings only. All of it is a cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from katib.errors import UnavailableError
from katib.model.metrics import Change, MetricLog, ObservationReader, parse_value
from suggestion_services.early_stopping.curves import CostCurve, CurvePoint, CurveState

_TRIALS_AT_ONCE = 200
"""Trials per query to the log; a service that has just started queries all trials."""


@dataclass(frozen=True, slots=True)
class JudgedTrial:
    """A trial whose curve counts.

    Attributes:
        name: Its name.
        start_time: Distinguishes it from a trial of the same name in a former run of the experiment.
        standing: Its state.
    """

    name: str
    start_time: str
    standing: CurveState


_NO_STEP = -1

_Order = tuple[int, datetime, int]
"""Step; time; order of arrival."""

_Entry = tuple[_Order, float]
"""Position and cost of a reading."""


def _order(entry: _Entry) -> _Order:
    return entry[0]


@dataclass(slots=True)
class _TrialReadings:
    """The known readings of one trial."""

    start_time: str
    curve: CostCurve
    cursor: int = 0
    settled: bool = False
    readings: list[_Entry] = field(default_factory=list)

    def add(self, news: Sequence[tuple[MetricLog, float]]) -> None:
        """Add readings, with their costs, that arrived after all others, wherever they belong in the curve."""
        known, before = self.readings, len(self.readings)
        last = known[-1] if known else None
        for reading, cost in news:
            step = _NO_STEP if reading.step is None else reading.step
            known.append(((step, reading.time, len(known)), cost))
        added = sorted(known[before:], key=_order)
        known[before:] = added
        if last is None or _order(last) < _order(added[0]):
            by_number = added[-1][0][0] == _NO_STEP
            if last is None or by_number is self.curve.by_number:
                self._extend(added, before, by_number=by_number)
                return
        known.sort(key=_order)
        self._extend(known, 0, by_number=known[-1][0][0] == _NO_STEP)

    def _extend(self, entries: Sequence[_Entry], before: int, *, by_number: bool) -> None:
        """Append the entries after the first `before` to the curve; with 0 it is rebuilt.

        Readings without a step come before those with one, at resource 0.
        """
        curve = self.curve if before else CostCurve(self.curve.trial_name, self.curve.standing, by_number=by_number)
        numbered = enumerate(entries, before + 1)
        self.curve = curve.extended([CurvePoint(i if by_number else max(e[0][0], 0), e[1]) for i, e in numbered])


class Curves:
    """The curves of one objective of one experiment. Not thread-safe."""

    def __init__(self, metric: str, *, maximize: bool) -> None:
        self._metric = metric
        self._sign = -1.0 if maximize else 1.0
        self._gathered: dict[str, _TrialReadings] = {}
        self.version = 0
        """Increases whenever a result of `refresh` has changed."""

    def refresh(
        self,
        trials: Collection[JudgedTrial],
        log: ObservationReader,
        is_awaited: Callable[[], bool] = lambda: True,
    ) -> list[CostCurve]:
        """Return the curves of these trials, updated from the log.

        An ended trial that was read since is not read again: its readings are stored before it ends.

        Args:
            trials: The trials.
            log: The observation log.
            is_awaited: Returns whether a client still waits for the answer; called between two queries to the log.

        Raises:
            UnavailableError: The log cannot be reached, or no client waits any more; readings so far are kept for the
                next attempt.
        """
        self._keep(trials)
        due = [trial for trial in trials if not self._gathered[trial.name].settled]
        for start in range(0, len(due), _TRIALS_AT_ONCE):
            some = due[start : start + _TRIALS_AT_ONCE]
            asked = {trial.name for trial in some}
            while asked:  # a long log comes in several answers
                if not is_awaited():
                    raise UnavailableError("reading the curves took longer than the caller waits; retry to continue")
                cursors = {name: self._gathered[name].cursor for name in asked}
                asked = self._take(log.changes(cursors, self._metric))
            for trial in some:
                self._gathered[trial.name].settled = trial.standing is not CurveState.RUNNING
        return [self._gathered[trial.name].curve for trial in trials]

    def _keep(self, trials: Collection[JudgedTrial]) -> None:
        """Forget removed trials and update the state of the others."""
        old, self._gathered = self._gathered, {}
        changed = False
        for trial in trials:
            known = old.get(trial.name)
            if known is None or known.start_time != trial.start_time:
                known = _TrialReadings(trial.start_time, CostCurve(trial.name, trial.standing))
                changed = True
            elif known.curve.standing is not trial.standing:
                known.curve = known.curve.ended(trial.standing)
                known.settled = False
                changed = True
            self._gathered[trial.name] = known
        if changed or len(old) != len(self._gathered):
            self.version += 1

    def _take(self, changes: Iterable[Change]) -> set[str]:
        """Add readings to their curves; return the names of their trials."""
        news: dict[str, list[tuple[MetricLog, float]]] = {}
        for change in changes:
            value = parse_value(change.reading.value)
            cost = math.nan if value is None else self._sign * value
            news.setdefault(change.trial_name, []).append((change.reading, cost))
            gathered = self._gathered[change.trial_name]
            gathered.cursor = max(gathered.cursor, change.cursor)
        for name, readings in news.items():
            self._gathered[name].add(readings)
            self.version += 1
        return set(news)
