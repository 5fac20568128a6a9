"""Past trials as data for a model: rows, scores, and taken points. Each experiment has its own history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from suggestion_services.base.algorithm import PastTrial, Problem, TrialOutcome
from suggestion_services.gp.encoding import Encoding
from suggestion_services.gp.optimize import BoolArray, FloatArray, IntArray
from suggestion_services.gp.warping import OutcomeTransform, fit_transform

_LARGEST = 1e100  # squares of values must stay finite
_BLOCK = 500  # trials compared with all others at once
_LARGE = 0.9  # quantile of distances to a bound
_BROKEN_MOST = 2.0  # limit of a scaled violation: larger ones are no more informative


@dataclass(frozen=True)
class ModelHistory:
    """Trials by their outcome. Trials with points outside the space are left out.

    Attributes:
        measured: Rows (n, d) of the trials with a value.
        values: Their values (n,), lower is better. With several objectives: by how many others each is dominated.
        bad: Rows (b, d) of those that failed or diverged.
        pending: Rows (q, d) of those without a result yet.
        silent: Rows of those that ended without information; they are only not repeated.
        violations: Signed distances of the measured trials to the bounds of each constraint, shape (m, n): positive
            beyond, NaN if unread.
        objectives: With several of them, the values of all (n, o), lower is better; (n, 0) with one.
        seconds: Durations of the measured trials (n,); NaN if unknown.
        steps: Steps at which measured trials were stopped early (n,); NaN for all others.
    """

    measured: FloatArray
    values: FloatArray
    bad: FloatArray
    pending: FloatArray
    silent: FloatArray
    violations: FloatArray
    objectives: FloatArray
    seconds: FloatArray
    steps: FloatArray

    @property
    def taken(self) -> FloatArray:
        """All rows that need not be tried again."""
        return np.concatenate([self.measured, self.bad, self.pending, self.silent])

    @property
    def known(self) -> FloatArray:
        """The rows (n + b, d) with a score."""
        return np.concatenate([self.measured, self.bad])

    def only(self, kept: IntArray) -> ModelHistory:
        """Return the history with these of the measured trials."""
        violations, objectives = self.violations[:, kept], self.objectives[kept]
        measured, values, seconds, steps = (a[kept] for a in (self.measured, self.values, self.seconds, self.steps))
        return replace(
            self,
            measured=measured,
            values=values,
            violations=violations,
            objectives=objectives,
            seconds=seconds,
            steps=steps,
        )

    @property
    def seeks_feasible(self) -> bool:
        """Whether no trial is feasible yet, so that violations are minimized."""
        return not np.any(self.feasible) and not np.all(np.isnan(self.violations))

    @cached_property
    def scores(self) -> FloatArray:
        """Standard scores (n,) of the measured trials: `minimized`, transformed to mean 0 and deviation 1."""
        return self.transform(self.minimized)

    @property
    def minimized(self) -> FloatArray:
        """Values (n,) to minimize: total violations until one trial keeps all constraints, then the objective."""
        return self._total_violations() if self.seeks_feasible else self.values

    @property
    def failure_labels(self) -> FloatArray:
        """Labels (n + b,) of the known trials for a model of failures: 1 if bad, -1 if measured."""
        return np.concatenate([np.full(len(self.measured), -1.0), np.ones(len(self.bad))])

    @cached_property
    def transform(self) -> OutcomeTransform:
        """The transform of `minimized` to `scores`."""
        return fit_transform(self.minimized)

    @cached_property
    def feasible(self) -> BoolArray:
        """Mask of the measured trials that are known to be feasible, shape (n,)."""
        return np.all(self.violations <= 0, axis=0) if len(self.violations) else np.ones(len(self.values), dtype=bool)

    def _total_violations(self) -> FloatArray:
        """Return the sums (n,) of the violations, each in units of its own median; unread ones count as the worst."""
        total = np.zeros(len(self.values))
        for distances in self.violations:
            violations = np.maximum(distances, 0.0)  # NaN stays
            known = violations[~np.isnan(violations)]
            broken = known[known > 0]
            if len(broken):
                total += np.where(np.isnan(violations), broken.max(), violations) / np.median(broken)
        return total

    def constraint_scores(self, i: int) -> tuple[IntArray, FloatArray]:
        """Return the measured trials that were read for a constraint, and their scores: negative if kept.

        A score is the logarithm of the signed distance to the bound, in units of a large distance, so the model finds
        the bound between trials on both sides. The median distance would shrink as trials crowd at the bound, until
        scores are a step there. A metric that is cut off at its bound has no distances on the inside; there every trial
        that keeps the constraint scores -1, and the least violation 1.
        """
        read = np.flatnonzero(~np.isnan(self.violations[i]))
        distances = self.violations[i][read]
        sizes = np.abs(distances)
        usual = float(np.quantile(sizes[sizes > 0], _LARGE)) if np.any(sizes > 0) else 1.0
        scores = np.sign(distances) * np.log1p(sizes / usual)
        kept = distances <= 0
        if np.count_nonzero(distances == 0) * 2 > np.count_nonzero(kept):
            scores = np.where(kept, -1.0, np.minimum(1.0 + 0.5 * scores, _BROKEN_MOST))
        return read, scores


def beaten_by(y: FloatArray) -> FloatArray:
    """Return the number of points that dominate each of the points (n, m), shape (n,); lower is better."""
    counts = []
    for part in np.array_split(y, len(y) // _BLOCK + 1):
        no_worse, better = np.ones((len(part), len(y)), dtype=bool), np.zeros((len(part), len(y)), dtype=bool)
        for all_values, values in zip(y.T, part.T[:, :, None], strict=True):
            no_worse &= all_values <= values
            better |= all_values < values
        counts.append(np.count_nonzero(no_worse & better, axis=1))
    return np.concatenate(counts).astype(np.float64)


class HistoryReader:
    """Converts trials to a history, encoding only new or changed ones."""

    def __init__(self, problem: Problem, encoding: Encoding) -> None:
        self._problem, self._encoding = problem, encoding
        self._directions = (problem.maximize, *problem.directions[1:])
        self._known: dict[str, tuple[PastTrial, FloatArray | None]] = {}

    def read(self, trials: Sequence[PastTrial]) -> ModelHistory:
        """Return the history of one experiment's trials."""
        old, self._known = self._known, {}
        several = len(self._directions) > 1
        rows: dict[TrialOutcome, list[FloatArray]] = {outcome: [] for outcome in TrialOutcome}
        values, violations, objectives, seconds, steps = [], [], [], [], []
        for trial in trials:
            known = old.get(trial.name)
            if known is None or (known[0] is not trial and known[0] != trial):
                known = trial, self._row(trial)
            self._known[trial.name] = known
            if known[1] is None:
                continue
            rows[trial.outcome].append(known[1])
            if trial.outcome is TrialOutcome.MEASURED:
                lower = [
                    min(max(-value if up else value, -_LARGEST), _LARGEST)
                    for value, up in zip(trial.values, self._directions, strict=False)
                ]
                values.append(lower[0])
                objectives.append(lower if several else [])
                violations.append(trial.violations)
                seconds.append(trial.seconds)
                steps.append(np.nan if trial.stopped_at is None else trial.stopped_at)
        n_constraints = len(self._problem.constraints)
        matrix = [[*v, *[np.nan] * n_constraints][:n_constraints] for v in violations]
        stacked = {outcome: np.reshape(some, (len(some), self._encoding.count)) for outcome, some in rows.items()}
        return ModelHistory(
            stacked[TrialOutcome.MEASURED],
            beaten_by(np.array(objectives)) if several and objectives else np.array(values, dtype=np.float64),
            stacked[TrialOutcome.BAD],
            stacked[TrialOutcome.PENDING],
            stacked[TrialOutcome.SILENT],
            np.reshape(np.array(matrix, dtype=np.float64), (len(values), n_constraints)).T,
            np.reshape(np.array(objectives, dtype=np.float64), (len(values), -1 if values else 0)),
            np.array(seconds, dtype=np.float64),
            np.array(steps, dtype=np.float64),
        )

    def _row(self, trial: PastTrial) -> FloatArray | None:
        point = self._problem.space.nearest(trial.assignments.items())
        return None if point is None else self._encoding.row(point)
