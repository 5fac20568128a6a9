"""The metric by which a figure ranks and colours trials: the objective, another one of several, or any metric."""

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
"""Bad values further from the middle half than this multiple of its width [Tukey1977] share the last colour."""

GOOD_DARK = ("#B4DE2C", "#6DCD59", "#35B779", "#1F9E89", "#26828E", "#31688E", "#3E4A89", "#482878", "#440154")
"""Viridis from bad to good, for a white background: good trials stand out, bad ones fade."""
GOOD_BRIGHT = ("#3E4A89", "#31688E", "#26828E", "#1F9E89", "#35B779", "#6DCD59", "#B4DE2C", "#FDE725")
"""The same for a dark page."""
_INFEASIBLE_GREY = "#9A9A9A"
_GREY_SHARE = 0.06


@dataclass(frozen=True, slots=True)
class RankingMetric:
    """A metric that ranks trials.

    Attributes:
        rows: Trials that have ended with a finite value of it, in order.
        maximize: Whether larger is better; also for a metric without a direction, so that larger stands out.
    """

    name: str
    values: Floats
    rows: Rows
    maximize: bool
    feasible: npt.NDArray[np.bool_]

    @property
    def costs(self) -> Floats:
        """The column, negated if maximized."""
        return -self.values if self.maximize else self.values

    @property
    def ranked(self) -> Rows:
        """`rows` from the best to the worst: feasible ones first, the oldest of equal ones first."""
        return self.rows[np.lexsort((self.costs[self.rows], ~self.feasible[self.rows]))]

    @property
    def best(self) -> int | None:
        """The best feasible trial; None without one."""
        ranked = self.ranked[:1]
        return int(ranked[0]) if len(ranked) and self.feasible[ranked[0]] else None


def target_of(trials: TrialTable, metric: str = "") -> RankingMetric:
    """Return the target for a metric.

    Args:
        metric: The metric; empty: the objective, or the first of several.

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
    return RankingMetric(name, values, rows, maximize, trials.feasible)


@dataclass(frozen=True, slots=True)
class Shades:
    """Colours of trials by quality.

    Attributes:
        best: The cost with the last colour.
        worst: The cost from which on all have the first colour.
        floor: Start of the colours in 0 to 1; below is the grey of infeasible trials.
        texts: Texts of the colour bar, from worst to best, at even distances.
    """

    best: float
    worst: float
    floor: float
    texts: tuple[str, ...]

    def of(self, costs: Floats) -> Floats:
        """Return numbers in 0 to 1 of costs; the best is 1."""
        share = np.clip((self.worst - costs) / (self.worst - self.best or 1.0), 0.0, 1.0)
        return self.floor + (1 - self.floor) * share

    def of_rows(self, target: RankingMetric, rows: Rows) -> Floats:
        """Return the numbers of some trials; 0 for infeasible ones."""
        return np.where(target.feasible[rows], self.of(target.costs[rows]), 0.0)

    def axis(self) -> dict[str, Any]:
        """Return Plotly's `coloraxis`, with original values on its bar."""
        ticks = list(self.floor + (1 - self.floor) * np.linspace(0.0, 1.0, len(self.texts)))
        texts = list(self.texts)
        if self.floor:
            ticks[0], texts[0] = 0.0, "infeasible"
        bar = {"tickvals": ticks, "ticktext": texts, "thickness": 12, "title": {"text": ""}}
        return {"cmin": 0.0, "cmax": 1.0, "colorscale": scale_of(GOOD_DARK, self.floor), "colorbar": bar}

    @property
    def meta(self) -> dict[str, Any]:
        """Changes of the layout for a dark page, for `layout.meta`."""
        return {"dark": {"coloraxis": {"colorscale": scale_of(GOOD_BRIGHT, self.floor)}}}


_BAR_STEPS = 5


def shades_of(target: RankingMetric, rows: Rows) -> Shades:
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


def sampled(target: RankingMetric, most: int, best: int, columns: Iterable[Floats] = ()) -> Rows:
    """Return at most `most` measured trials, from the worst to the best, so that the best are drawn last.

    The best ones, those with the extremes of some columns, and a random sample of the rest. A trial keeps its random
    number, so that the figure of a running experiment changes little.

    Args:
        most: Maximum number of results.
        best: Minimum number of the best trials.
        columns: Columns whose smallest and largest values are kept.
    """
    ranked = target.ranked
    if len(ranked) > most:
        known = [found for column in columns if not np.isnan(found := column[ranked]).all()]
        extremes = sorted({int(ranked[find(column)]) for column in known for find in (np.nanargmin, np.nanargmax)})
        kept = np.unique(np.concatenate((ranked[:best], np.array(extremes[: (most - best) // 2], dtype=np.int64))))
        others = np.setdiff1d(ranked, kept)
        lots = np.random.default_rng(_LOTS).random(len(target.values))[others]
        drawn = np.concatenate((kept, others[np.argsort(lots)[: most - len(kept)]]))
        ranked = ranked[np.isin(ranked, drawn)]
    return ranked[::-1]


_LOTS = 7_121
"""A seed that is not used elsewhere: samples must not correlate with the values that a search drew."""


def scale_of(colours: tuple[str, ...], floor: float = 0.0) -> list[tuple[float, str]]:
    """Return Plotly's `colorscale` of colours at even distances; below the floor is the grey of the infeasible."""
    stops = [(float(place), colour) for place, colour in zip(np.linspace(floor, 1, len(colours)), colours, strict=True)]
    return [(0.0, _INFEASIBLE_GREY), (floor, _INFEASIBLE_GREY), *stops] if floor else stops


_GROUPS = 10
_MOST_TRIALS = 5_000
"""Newest measured trials used: enough to order parameters."""


def most_telling(trials: TrialTable, count: int, metric: str = "") -> tuple[str, ...]:
    """Return at most `count` parameters in the order of the search space.

    If there are more, those most telling about the metric are kept.
    """
    if len(trials.values) <= count:
        return tuple(trials.values)
    kept = set(by_telling(trials, metric)[:count])
    return tuple(name for name in trials.values if name in kept)


def by_telling(trials: TrialTable, metric: str = "") -> tuple[str, ...]:
    """Return the names of all parameters, the most telling first."""
    target = target_of(trials, metric)
    rows = target.rows[-_MOST_TRIALS:]
    ranks = np.argsort(np.argsort(target.values[rows], kind="stable"), kind="stable").astype(np.float64)
    shares = {
        name: _explained(_groups(column[rows], is_categorical=trials.parameter(name).is_categorical), ranks)
        for name, column in trials.values.items()
    }
    return tuple(sorted(shares, key=lambda name: -shares[name]))


def _groups(values: Floats, *, is_categorical: bool) -> Floats:
    """Return the index of each trial's group; -1 for trials without the parameter."""
    present = ~np.isnan(values)
    if is_categorical or not present.any():
        return np.where(present, values, -1.0)
    edges = np.unique(np.quantile(values[present], np.linspace(0, 1, _GROUPS + 1)[1:-1]))
    return np.where(present, np.searchsorted(edges, np.where(present, values, 0.0), side="right"), -1.0)


def _explained(groups: Floats, ranks: Floats) -> float:
    """Return the share of the variance between groups, less the expected share of as many random groups."""
    n = len(ranks)
    _, place, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    total = float(np.sum((ranks - ranks.mean()) ** 2)) if n else 0.0
    if len(sizes) < 2 or total == 0 or n <= len(sizes):  # noqa: PLR2004 - one group says nothing
        return -1.0
    means = np.bincount(place, weights=ranks) / sizes
    between = float(np.sum(sizes * (means - ranks.mean()) ** 2))
    within = (total - between) / (n - len(sizes))
    return (between - (len(sizes) - 1) * within) / total
