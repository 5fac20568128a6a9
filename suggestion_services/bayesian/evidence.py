"""What the past trials say to a regression model, which needs one finite number for every point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from katib.space import Point
from suggestion_services.base.algorithm import Outcome, PastTrial, Problem

_LARGEST = 1e100  # squares of values must stay finite in the model
_SHORTEST_SECONDS = 1.0  # trials carry whole seconds, and the model takes the logarithm


@dataclass(slots=True)
class Evidence:
    """Points by what is known of them. Values are to be minimized.

    Attributes:
        measured: Points with a value and a duration, NaN when unknown.
        bad: Points that failed or diverged.
        pending: Points without a result yet.
        silent: Points that ended without a word; they are only not repeated.
    """

    measured: list[tuple[Point, float, float]] = field(default_factory=list)
    bad: list[Point] = field(default_factory=list)
    pending: list[Point] = field(default_factory=list)
    silent: list[Point] = field(default_factory=list)

    def points(self) -> list[Point]:
        """Return every point that is taken."""
        return [point for point, _, _ in self.measured] + self.bad + self.pending + self.silent

    def table(self) -> tuple[list[Point], list[float], list[float]]:
        """Return points, values and durations of equal lengths; there must be a measured point.

        What is not measured is filled in: the worst value for bad points, the mean for pending ones, the mean duration.
        """
        values = [y for _, y, _ in self.measured]
        known = [t for _, _, t in self.measured if not math.isnan(t)]
        usual = max(fmean(known), _SHORTEST_SECONDS) if known else _SHORTEST_SECONDS
        seconds = [usual if math.isnan(t) else max(t, _SHORTEST_SECONDS) for _, _, t in self.measured]
        points = [point for point, _, _ in self.measured] + self.bad + self.pending
        values += [max(values)] * len(self.bad) + [fmean(values)] * len(self.pending)
        return points, values, seconds + [usual] * (len(points) - len(seconds))


def gather(problem: Problem, trials: Sequence[PastTrial]) -> Evidence:
    """Return what the trials say; a trial whose point is not of this space says nothing."""
    evidence = Evidence()
    for trial in trials:
        point = problem.space.nearest(trial.assignments.items())
        if point is None:
            continue
        if trial.outcome is Outcome.MEASURED:
            y = -trial.objective if problem.maximize else trial.objective
            evidence.measured.append((point, min(max(y, -_LARGEST), _LARGEST), trial.seconds))
        elif trial.outcome is Outcome.BAD:
            evidence.bad.append(point)
        elif trial.outcome is Outcome.PENDING:
            evidence.pending.append(point)
        else:
            evidence.silent.append(point)
    return evidence
