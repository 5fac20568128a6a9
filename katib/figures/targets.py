"""What a figure measures trials by: the objective, another one of several, or any metric; and how that is coloured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

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
    feasible: npt.NDArray[np.bool_]

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
        best: The cost that has the last colour.
        worst: The cost that has the first one, as do all that are worse.
        floor: Where the colours begin in 0 to 1; below is the grey of what is outside of the constraints.
        texts: Of the bar, from worst to best, at even distances.
    """

    best: float
    worst: float
    floor: float
    texts: tuple[str, ...]

    def of(self, costs: Floats) -> Floats:
        """Return numbers in 0 to 1 of costs; the best is 1."""
        share = np.clip((self.worst - costs) / (self.worst - self.best or 1.0), 0.0, 1.0)
        return self.floor + (1 - self.floor) * share

    def of_rows(self, target: Target, rows: Rows) -> Floats:
        """Return the numbers of some trials; 0 outside of the constraints."""
        return np.where(target.feasible[rows], self.of(target.costs[rows]), 0.0)

    def axis(self, title: str = "") -> dict[str, Any]:
        """Return Plotly's `coloraxis`, whose bar names true values."""
        ticks = list(self.floor + (1 - self.floor) * np.linspace(0.0, 1.0, len(self.texts)))
        texts = list(self.texts)
        if self.floor:
            ticks[0], texts[0] = 0.0, "infeasible"
        bar = {"tickvals": ticks, "ticktext": texts, "thickness": 12, "title": {"text": title}}
        return {"cmin": 0.0, "cmax": 1.0, "colorscale": _scale(GOOD_DARK, self.floor), "colorbar": bar}

    @property
    def meta(self) -> dict[str, Any]:
        """What a page changes of the layout when it is dark, as `layout.meta` says it."""
        return {"dark": {"coloraxis": {"colorscale": _scale(GOOD_BRIGHT, self.floor)}}}


_BAR_STEPS = 5


def shades_of(target: Target, rows: Rows) -> Shades:
    """Return the colours for some trials. Values much worse than most share the colour of the worst."""
    costs, feasible = target.costs[rows], target.feasible[rows]
    counted = costs[feasible] if feasible.any() else costs
    low, middle, high = np.quantile(counted, (0.25, 0.5, 0.75))
    best = float(counted.min())
    worst = min(float(counted.max()), float(high + _OUTLYING * max(high - low, middle - best)))
    signed = -1.0 if target.maximize else 1.0
    texts = [number(signed * value) for value in np.linspace(worst, best, _BAR_STEPS)]
    if counted.max() > worst:
        texts[0] = f"{'≤' if target.maximize else '≥'} {texts[0]}"
    return Shades(best, worst, 0.0 if feasible.all() else _GREY_SHARE, tuple(texts))


def sampled(target: Target, most: int, best: int, columns: Iterable[Floats] = ()) -> Rows:
    """Return at most so many measured trials, from the worst to the best, so that the best are drawn last.

    The best ones, those with the extremes of some columns, and of the others by lot. A lot stays with a trial, so that
    a figure of a running experiment does not change as a whole.

    Args:
        target: What trials are measured by.
        most: Returned at most.
        best: So many of the best at least.
        columns: Whose smallest and largest value is kept.
    """
    ranked = target.ranked
    if len(ranked) > most:
        extremes = sorted({int(ranked[place]) for column in columns for place in _ends(column[ranked])})
        kept = np.unique(np.concatenate((ranked[:best], np.array(extremes[: (most - best) // 2], dtype=np.int64))))
        others = np.setdiff1d(ranked, kept)
        lots = np.random.default_rng(_LOTS).random(len(target.values))[others]
        drawn = np.concatenate((kept, others[np.argsort(lots)[: most - len(kept)]]))
        ranked = ranked[np.isin(ranked, drawn)]
    return ranked[::-1]


_LOTS = 7_121
"""A seed that is not used elsewhere: lots must not correlate with the values that a search drew."""


def _ends(column: Floats) -> list[int]:
    if np.isnan(column).all():
        return []
    return [int(np.nanargmin(column)), int(np.nanargmax(column))]


def _scale(colours: tuple[str, ...], floor: float) -> list[tuple[float, str]]:
    stops = [(float(place), colour) for place, colour in zip(np.linspace(floor, 1, len(colours)), colours, strict=True)]
    return [(0.0, _INFEASIBLE_GREY), (floor, _INFEASIBLE_GREY), *stops] if floor else stops
