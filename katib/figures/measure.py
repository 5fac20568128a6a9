"""The column that a figure draws: an objective, or any other metric that a reader chose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from katib.figures.style import places, thinned_rows
from katib.figures.trials import Floats, Rows, TrialTable

_MOST_CORNERS = 1_000
"""Of the line of the best so far: it has few, but nothing keeps every trial from being better than all before it."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric of all trials.

    Attributes:
        name: The metric.
        values: Its column.
        drawn: Which trials have ended with a finite value of it.
        eligible: Those of them that may be the best: without the ones that violate constraints.
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
    return Measure(name, values, drawn, drawn & trials.feasible, maximize, goal)


def improvements(costs: Floats) -> Rows:
    """Return where a cost is smaller than all before it: the corners of the line of the best so far.

    Of more than 1,000 the first, the last and an even choice of the others.
    """
    if not len(costs):
        return np.empty(0, dtype=np.int64)
    best = np.minimum.accumulate(costs)
    improved = places(np.isfinite(costs) & (costs < np.concatenate(([np.inf], best[:-1]))))
    return thinned_rows(costs, improved, _MOST_CORNERS)
