"""What a figure measures trials by: the objective, another one of several, or any metric; and how that is coloured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from katib.errors import invalid
from katib.figures.axes import number
from katib.figures.style import places
from katib.figures.trials import Floats, Rows, TrialTable

_OUTLYING = 1.5
"""Bad values further from the middle half than so many times its width [Tukey1977] share the last colour."""

GOOD_DARK = ("#B4DE2C", "#6DCD59", "#35B779", "#1F9E89", "#26828E", "#31688E", "#3E4A89", "#482878", "#440154")
"""Viridis from bad to good, for white paper: the good ones stand out, the bad ones fade."""
GOOD_BRIGHT = ("#3E4A89", "#31688E", "#26828E", "#1F9E89", "#35B779", "#6DCD59", "#B4DE2C", "#FDE725")
"""The same for a dark page."""
_INFEASIBLE_GREY = "#9A9A9A"
_GREY_SHARE = 0.06


@dataclass(frozen=True, slots=True)
class Target:
    """What trials are measured by.

    Attributes:
        name: Of the metric.
        values: Its column.
        rows: Trials that have ended with a finite value of it, in order.
        maximize: Whether larger is better; also for a metric without a direction, so that larger stands out.
        feasible: The column of the table.
    """

    name: str
    values: Floats
    rows: Rows
    maximize: bool
    feasible: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

    @property
    def costs(self) -> Floats:
        """Its column with the sign that makes smaller better."""
        return -self.values if self.maximize else self.values

    @property
    def ranked(self) -> Rows:
        """`rows` from the best to the worst: those within the constraints first, of equal ones the oldest."""
        return self.rows[np.lexsort((self.costs[self.rows], ~self.feasible[self.rows]))]

    @property
    def best(self) -> int | None:
        """The best trial that is within the constraints; None without one."""
        ranked = self.ranked[:1]
        return int(ranked[0]) if len(ranked) and self.feasible[ranked[0]] else None


def target_of(trials: TrialTable, metric: str = "") -> Target:
    """Return what to measure by.

    Args:
        trials: Of the experiment.
        metric: Its name; empty: the objective, or the first of several.

    Raises:
        InvalidError: No trial has such a metric.
    """
    name = metric or trials.objective.name
    if name not in trials.metrics:
        remedy = f"choose of {', '.join(trials.metrics)}"
        raise invalid("metric", f'the trials have no metric "{name}"', remedy, "figure-metric")
    values = trials.metrics[name]
    maximize = {objective.name: objective.maximize for objective in trials.objectives}.get(name, True)
    rows = places(np.isfinite(values) & trials.in_states("Succeeded", "EarlyStopped"))
    return Target(name, values, rows, maximize, trials.feasible)


@dataclass(frozen=True, slots=True)
class Shades:
    """Colours of trials by how good they are.

    Attributes:
        shades: Of each asked trial in 0 to 1; the best is 1. Trials outside of the constraints are at 0, in grey.
        axis: Plotly's `coloraxis`, whose bar names true values.
        dark: What to change of it on a dark page.
    """

    shades: Floats
    axis: dict[str, object]
    dark: dict[str, object]


def shades_of(target: Target, rows: Rows) -> Shades:
    """Return the colours of some trials. Values much worse than most share the colour of the worst."""
    costs, feasible = target.costs[rows], target.feasible[rows]
    counted = costs[feasible] if feasible.any() else costs
    low, middle, high = np.quantile(counted, (0.25, 0.5, 0.75))
    best, worst = counted.min(), min(counted.max(), high + _OUTLYING * max(high - low, middle - counted.min()))
    width = worst - best or 1.0
    floor = _GREY_SHARE if not feasible.all() else 0.0
    shades = floor + (1 - floor) * np.clip((worst - costs) / width, 0.0, 1.0)
    shades[~feasible] = 0.0
    steps = np.linspace(0.0, 1.0, 5)
    signed = -1.0 if target.maximize else 1.0
    texts = [number(signed * (worst - share * width)) for share in steps]
    if counted.max() > worst:
        texts[0] = f"{'≤' if target.maximize else '≥'} {texts[0]}"
    ticks = list(floor + (1 - floor) * steps)
    if floor:
        ticks, texts = [0.0, *ticks[1:]], ["infeasible", *texts[1:]]
    bar = {"tickvals": ticks, "ticktext": texts, "thickness": 12, "title": {"text": ""}}
    axis = {"cmin": 0.0, "cmax": 1.0, "colorscale": _scale(GOOD_DARK, floor), "colorbar": bar}
    return Shades(shades, axis, {"colorscale": _scale(GOOD_BRIGHT, floor)})


def _scale(colours: tuple[str, ...], floor: float) -> list[tuple[float, str]]:
    stops = [(float(place), colour) for place, colour in zip(np.linspace(floor, 1, len(colours)), colours, strict=True)]
    return [(0.0, _INFEASIBLE_GREY), (floor, _INFEASIBLE_GREY), *stops] if floor else stops
