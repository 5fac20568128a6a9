"""What past trials say to a model: rows, scores, and which points are taken. Each experiment has its own history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from suggestion_services.base.algorithm import Outcome, PastTrial, Problem
from suggestion_services.gp.encoding import Encoding
from suggestion_services.gp.optimize import BoolArray, FloatArray, IntArray
from suggestion_services.gp.warping import OutcomeTransform, fit_transform

_LARGEST = 1e100  # squares of values must stay finite
_AUGMENTED = 0.05
_BROKEN_MOST = 2.0  # a constraint that is broken a thousand times over says no more than one broken badly


@dataclass(frozen=True)
class History:
    """Trials by what is known of them. Trials whose points are not of the space are left out.

    Attributes:
        measured: Rows (n, d) of the trials with a value.
        values: Their values (n,), lower is better.
        bad: Rows (b, d) of those that failed or diverged.
        pending: Rows (q, d) of those that have no result yet.
        silent: Rows of those that ended without a word; they are only not repeated.
        violations: For each constraint how far the measured trials break it, shape (m, n); NaN where unread.
        objectives: With several of them, the values of all (n, o), lower is better; (n, 0) with one.
        seconds: How long the measured trials took (n,); NaN where unknown.
    """

    measured: FloatArray
    values: FloatArray
    bad: FloatArray
    pending: FloatArray
    silent: FloatArray
    violations: FloatArray
    objectives: FloatArray
    seconds: FloatArray

    @property
    def taken(self) -> FloatArray:
        """Every row that need not be tried again."""
        return np.concatenate([self.measured, self.bad, self.pending, self.silent])

    @property
    def known(self) -> FloatArray:
        """The rows (n + b, d) that have a score."""
        return np.concatenate([self.measured, self.bad])

    def scalarized(self, weights: FloatArray) -> History:
        """Return the history of one objective made of all, given weights (o,) that add up to 1.

        The augmented Chebyshev norm of [Knowles2006] ParEGO, IEEE Transactions on Evolutionary Computation 10, of
        values in units of the front that was found: each weight makes another of its points the least. Over all trials,
        as there, the first bad ones would set the units.
        """
        if not len(self.values):
            return self
        y = self.objectives
        kept = y[self.feasible] if np.any(self.feasible) else y
        beaten = np.all(kept[:, None] >= kept, axis=2) & np.any(kept[:, None] > kept, axis=2)
        front = kept[~np.any(beaten, axis=1)]
        ideal, reach = front.min(axis=0), np.ptp(front, axis=0)
        reach = np.where(reach > 0, reach, np.ptp(y, axis=0))
        weighted = weights * (y - ideal) / np.where(reach > 0, reach, 1.0)
        return replace(self, values=weighted.max(axis=1) + _AUGMENTED * weighted.sum(axis=1))

    @property
    def seeks_feasible(self) -> bool:
        """Whether no trial keeps every constraint yet, so that how far they are broken is what counts."""
        return not np.any(self.feasible) and not np.all(np.isnan(self.violations))

    @cached_property
    def scores(self) -> FloatArray:
        """What is minimized, for measured and bad trials (n + b,).

        The values, or how far the constraints are broken, transformed: of mean 0 and deviation 1; bad trials have the
        worst.
        """
        return self.transform(self.minimized)

    @cached_property
    def minimized(self) -> FloatArray:
        """What is minimized, for measured and bad trials (n + b,), as it is; bad trials have the worst."""
        values = self._total_violations() if self.seeks_feasible else self.values
        return np.concatenate([values, np.full(len(self.bad), values.max())])

    @cached_property
    def transform(self) -> OutcomeTransform:
        """What makes scores of it."""
        return fit_transform(self.minimized[: len(self.values)])

    @cached_property
    def feasible(self) -> BoolArray:
        """For each measured trial whether it is known to keep every constraint, shape (n,)."""
        return np.all(self.violations == 0, axis=0) if len(self.violations) else np.ones(len(self.values), dtype=bool)

    def _total_violations(self) -> FloatArray:
        """Return the sums (n,) of the violations, each in units of its own median; one not read counts as the worst."""
        total = np.zeros(len(self.values))
        for violations in self.violations:
            known = violations[~np.isnan(violations)]
            broken = known[known > 0]
            if len(broken):
                total += np.where(np.isnan(violations), broken.max(), violations) / np.median(broken)
        return total

    def constraint_scores(self, i: int) -> tuple[IntArray, FloatArray]:
        """Return which measured trials were read for a constraint, and what they say: -1 kept, 1 and more broken.

        How far a constraint is kept is not known, so every trial that keeps it counts alike. The jump between the two
        leaves a little broken clearly on the wrong side: else the search would settle just outside the bound.
        """
        read = np.flatnonzero(~np.isnan(self.violations[i]))
        violations = self.violations[i][read]
        broken = violations > 0
        usual = float(np.median(violations[broken])) if np.any(broken) else 1.0
        return read, np.where(broken, np.minimum(1.0 + 0.5 * np.log1p(violations / usual), _BROKEN_MOST), -1.0)


class Reader:
    """Turns trials into a history, encoding only those that are new or changed."""

    def __init__(self, problem: Problem, encoding: Encoding) -> None:
        self._problem, self._encoding = problem, encoding
        self._directions = (problem.maximize, *problem.directions[1:])
        self._known: dict[str, tuple[PastTrial, FloatArray | None]] = {}

    def read(self, trials: Sequence[PastTrial]) -> History:
        """Return what the trials of one experiment say."""
        old, self._known = self._known, {}
        rows: dict[Outcome, list[FloatArray]] = {outcome: [] for outcome in Outcome}
        values, violations, objectives, seconds = [], [], [], []
        for trial in trials:
            known = old.get(trial.name)
            if known is None or (known[0] is not trial and known[0] != trial):
                known = trial, self._row(trial)
            self._known[trial.name] = known
            if known[1] is None:
                continue
            rows[trial.outcome].append(known[1])
            if trial.outcome is Outcome.MEASURED:
                lower = [
                    min(max(-value if up else value, -_LARGEST), _LARGEST)
                    for value, up in zip(trial.values, self._directions, strict=False)
                ]
                values.append(lower[0])
                objectives.append(lower if len(self._directions) > 1 else [])
                violations.append(trial.violations)
                seconds.append(trial.seconds)
        n_constraints = len(self._problem.constraints)
        matrix = [[*v, *[np.nan] * n_constraints][:n_constraints] for v in violations]
        stacked = {outcome: np.reshape(some, (len(some), self._encoding.count)) for outcome, some in rows.items()}
        return History(
            stacked[Outcome.MEASURED],
            np.array(values, dtype=np.float64),
            stacked[Outcome.BAD],
            stacked[Outcome.PENDING],
            stacked[Outcome.SILENT],
            np.reshape(np.array(matrix, dtype=np.float64), (len(values), n_constraints)).T,
            np.reshape(np.array(objectives, dtype=np.float64), (len(values), -1 if values else 0)),
            np.array(seconds, dtype=np.float64),
        )

    def _row(self, trial: PastTrial) -> FloatArray | None:
        point = self._problem.space.nearest(trial.assignments.items())
        return None if point is None else self._encoding.row(point)
