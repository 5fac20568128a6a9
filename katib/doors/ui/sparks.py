"""The best so far of experiments as small lines, for the list: read when a row is shown, and cached until it changes.

A line is of at most 1,000 trials: of all, or of a larger experiment of the best, which include every corner of its
later part. So a row costs one page of trials, for any size of the experiment.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from katib.errors import KatibError
from katib.figures.trials import number_of, objectives_of
from katib.model.trials import is_feasible, may_be_best, trial_state
from katib.model.types import Experiment, Trial
from katib.service.tuning.service import TrialOrder, TuningService
from katib.service.tuning.states import objective_value

WIDTH, HEIGHT = 96, 24
MOST_ASKED = 50
_TRIALS = 1_000
_MOST_KEPT = 2_000
_MARGIN = 2.0

Point = tuple[float, float]


def best_so_far(experiment: Experiment, trials: Iterable[Trial]) -> list[Point]:
    """Return the times of improvements, in seconds since 1970, and the values; the last point is the last end."""
    maximize = objectives_of(experiment)[0].maximize
    ended: list[tuple[datetime, float]] = []
    for trial in trials:
        value = number_of(objective_value(trial))
        if trial.status.completion_time and math.isfinite(value) and _may_be_best(trial):
            ended.append((trial.status.completion_time, value))
    points: list[Point] = []
    for moment, value in sorted(ended):
        if not points or (value > points[-1][1] if maximize else value < points[-1][1]):
            points.append((moment.timestamp(), value))
    if points:
        last = max(moment for moment, _ in ended).timestamp()
        points.append((last, points[-1][1]))
    return points


def _may_be_best(trial: Trial) -> bool:
    return may_be_best(trial, trial_state(trial)) and is_feasible(trial.spec.objective, trial.status.observation)


def path_of(points: Sequence[Point]) -> str:
    """Return the line through points as an SVG path of WIDTH and HEIGHT: steps, the larger value above."""
    if not points:
        return ""
    (first, last), values = (points[0][0], points[-1][0]), [value for _, value in points]
    low, high = min(values), max(values)
    width, height = WIDTH - 2 * _MARGIN, HEIGHT - 2 * _MARGIN

    def x(moment: float) -> str:
        return f"{_MARGIN + width * (moment - first) / (last - first):.1f}" if last > first else f"{_MARGIN:.1f}"

    def y(value: float) -> str:
        return f"{_MARGIN + height * (high - value) / (high - low):.1f}" if high > low else f"{HEIGHT / 2:.1f}"

    steps = "".join(f"H{x(moment)}V{y(value)}" for moment, value in points[1:])
    end = "" if last > first else f"H{WIDTH - _MARGIN:.1f}"
    return f"M{x(first)} {y(points[0][1])}{steps}{end}"


@dataclass(slots=True)
class Sparks:
    """Cached lines, of all users. Thread-safe."""

    _kept: OrderedDict[Hashable, str] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def path(self, service: TuningService, user: Hashable, namespace: str, name: str) -> str:
        """Return the line of an experiment; empty without a value, or if it is deleted or cannot be read.

        Args:
            service: A service with the rights of the user.
            user: The user.
            namespace: Namespace of the experiment.
            name: Name of the experiment.
        """
        try:
            experiment = service.get(Experiment, namespace, name)
            best = experiment.status.current_optimal_trial
            count = experiment.status.trials if experiment.status.completion_time is None else -1
            key = (user, experiment.metadata.uid, best.best_trial_name, count)
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    return self._kept[key]
            order: TrialOrder = "age" if experiment.status.trials <= _TRIALS else "objective"
            page = service.trials(namespace, name, order=order, limit=_TRIALS)
            found = path_of(best_so_far(experiment, page.items))
        except KatibError:
            return ""
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return found
