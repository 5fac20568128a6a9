"""The input of figures."""

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
"""Possible units of the horizontal axis of curves."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The readings of a trial's metric, in order.

    Attributes:
        values: The readings; NaN if one is not a number.
        steps: The training step of each; None if the program did not report it.
        seconds: Time since the start of the trial; NaN for a reading without a time.
        is_whole: Whether it has all readings, so that they can be counted.
    """

    values: Floats
    steps: Floats | None
    seconds: Floats
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class ExperimentData:
    """An experiment with its trials and curves, as input of figures.

    Attributes:
        curves: Curves of the chosen metric by the trial's name, for the trials that the figure's `curves` selects;
            empty for figures that need none.
        now: Time of the data, in seconds since 1970: running trials are drawn until then. NaN: unknown.
    """

    experiment: Experiment
    trials: TrialTable
    curves: Mapping[str, Curve] = field(default_factory=lambda: MappingProxyType({}))
    now: float = math.nan

    @property
    def name(self) -> str:
        return self.experiment.name


@dataclass(frozen=True, slots=True)
class FigureOptions:
    """A reader's choices for a figure; each figure uses those that it supports.

    Attributes:
        parameters: Axes to show, in order; empty: the most telling ones.
        metric: Metric to show; empty: the objective.
        by: Unit of the horizontal axis: `step` (of a training, or in a comparison the trials) or `time`.
        objectives: Axes of a Pareto front, two or three; empty: the first ones.
        axes: Horizontal axis, vertical axis and colour of a scatter plot; empty: the most telling ones.
        group: Parameter, or `tag`, by whose values curves are grouped; empty: no groups.
    """

    parameters: tuple[str, ...] = ()
    metric: str = ""
    by: str = "step"
    objectives: tuple[str, ...] = ()
    axes: tuple[str, ...] = ()
    group: str = ""


_MOST_CORNERS = 1_000
"""Corners of the line of the best so far: usually few, but every trial may improve on all earlier ones."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric of all trials.

    Attributes:
        drawn: Mask of trials that have ended with a finite value of it.
        eligible: Mask of those that may be the best.
        maximize: Whether larger is better; None without a direction.
        goal: The value that ends the search; None without one.
    """

    name: str
    values: Floats
    drawn: npt.NDArray[np.bool_]
    eligible: npt.NDArray[np.bool_]
    maximize: bool | None
    goal: float | None = None

    @property
    def costs(self) -> Floats:
        """The values, negated if maximized; infinity for trials that cannot be the best."""
        if self.maximize is None:
            return np.full(len(self.values), np.inf)
        return np.where(self.eligible, -self.values if self.maximize else self.values, np.inf)

    @property
    def best(self) -> int | None:
        """The row of the best trial, the oldest of equal ones; None without one."""
        costs = self.costs
        place = int(np.argmin(costs)) if len(costs) else -1
        return place if place >= 0 and np.isfinite(costs[place]) else None


def measure_of(trials: TrialTable, metric: str = "") -> Measure:
    """Return a metric of some trials, by default that of the first objective.

    The objective of repeated trials is the mean of their configuration, and only first runs of those with the most runs
    may be the best.

    Raises:
        KeyError: The trials have no metric of that name.
    """
    name = metric or trials.objective.name
    values = trials.metrics[name]
    objective = next((objective for objective in trials.objectives if objective.name == name), None)
    drawn = np.isfinite(values) & trials.in_states("Succeeded", "EarlyStopped")
    eligible = drawn & trials.may_be_best
    if trials.first_runs and name == trials.objective.name:
        counts, means = trials.run_counts_and_means
        values = np.where(np.isfinite(means) & trials.in_states("Succeeded"), means, values)
        whole = np.minimum(np.nan_to_num(counts), trials.repeats)
        is_first = [trials.first_runs.get(one, one) == one for one in trials.names]
        eligible &= np.array(is_first, bool) & (whole == whole.max(initial=0.0))
    maximize, goal = (objective.maximize, objective.goal) if objective else (None, None)
    return Measure(name, values, drawn, eligible, maximize, goal)


def improvements(costs: Floats) -> Rows:
    """Return the rows with a cost below all earlier ones: the corners of the line of the best so far.

    Of more than 1,000 the first, the last and an even selection of the others.
    """
    if not len(costs):
        return np.empty(0, dtype=np.int64)
    best = np.minimum.accumulate(costs)
    improved = places(np.isfinite(costs) & (costs < np.concatenate(([np.inf], best[:-1]))))
    return thinned_rows(costs, improved, _MOST_CORNERS)
