"""What a figure is drawn from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from katib.figures.style import places, thinned_rows
from katib.figures.trials import Floats, Rows, TrialTable
from katib.model.types import Experiment

WAYS = ("step", "time")
"""What the horizontal axis of curves may count."""


@dataclass(frozen=True, slots=True)
class Curve:
    """What a trial reported of a metric, in order.

    Attributes:
        values: The readings; NaN where one is no number.
        steps: The step of the training of each; None where the program did not say.
        seconds: Since the start of the trial; NaN for a reading without a time.
        is_whole: Whether it has all readings, so that they can be counted.
    """

    values: Floats
    steps: Floats | None
    seconds: Floats
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class ExperimentData:
    """An experiment as figures see it.

    Attributes:
        experiment: The Experiment.
        trials: All of its trials.
        curves: Curves of the asked metric by the trial's name, of those trials that the figure's `curves` names;
            empty for figures that need none.
        now: When all of this was so, in seconds since 1970: what still runs is drawn until then. NaN: not known.
    """

    experiment: Experiment
    trials: TrialTable
    curves: Mapping[str, Curve] = field(default_factory=lambda: MappingProxyType({}))
    now: float = math.nan

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.experiment.name


@dataclass(frozen=True, slots=True)
class Choice:
    """What a reader may choose of a figure; each figure uses what concerns it.

    Attributes:
        parameters: Axes to show, in order; empty: those that the figure finds most telling.
        metric: In place of the objective; empty: the objective.
        by: What the horizontal axis counts: `step` (of a training, or in a comparison the trials) or `time`.
        objectives: Axes of a Pareto front, two or three; empty: the first ones.
    """

    parameters: tuple[str, ...] = ()
    metric: str = ""
    by: str = "step"
    objectives: tuple[str, ...] = ()


_MOST_CORNERS = 1_000
"""Of the line of the best so far: it has few, but nothing keeps every trial from being better than all before it."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric of all trials.

    Attributes:
        name: The metric.
        values: Its column.
        drawn: Which trials have ended with a finite value of it.
        eligible: Those of them that may be the best.
        maximize: Whether larger is better; None where no direction is given.
        goal: The value at which the search ends; None without one.
    """

    name: str
    values: Floats
    drawn: npt.NDArray[np.bool_]
    eligible: npt.NDArray[np.bool_]
    maximize: bool | None
    goal: float | None = None

    @property
    def costs(self) -> Floats:
        """The values with the sign that makes smaller better; infinity for trials that cannot be the best."""
        if self.maximize is None:
            return np.full(len(self.values), np.inf)
        return np.where(self.eligible, -self.values if self.maximize else self.values, np.inf)

    @property
    def best(self) -> int | None:
        """The place of the best trial, of equal ones the oldest; None without one."""
        costs = self.costs
        place = int(np.argmin(costs)) if len(costs) else -1
        return place if place >= 0 and np.isfinite(costs[place]) else None


def measure_of(trials: TrialTable, metric: str = "") -> Measure:
    """Return a metric of some trials, that of the first objective when none is named.

    Raises:
        KeyError: The trials have none of that name.
    """
    name = metric or trials.objective.name
    values = trials.metrics[name]
    objective = next((objective for objective in trials.objectives if objective.name == name), None)
    drawn = np.isfinite(values) & trials.in_states("Succeeded", "EarlyStopped")
    maximize, goal = (objective.maximize, objective.goal) if objective else (None, None)
    return Measure(name, values, drawn, drawn & trials.may_be_best, maximize, goal)


def improvements(costs: Floats) -> Rows:
    """Return where a cost is smaller than all before it: the corners of the line of the best so far.

    Of more than 1,000 the first, the last and an even choice of the others.
    """
    if not len(costs):
        return np.empty(0, dtype=np.int64)
    best = np.minimum.accumulate(costs)
    improved = places(np.isfinite(costs) & (costs < np.concatenate(([np.inf], best[:-1]))))
    return thinned_rows(costs, improved, _MOST_CORNERS)
