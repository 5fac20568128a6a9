"""Rank: pairs of parameters, each trial coloured by its rank.

Ranks show the region of good trials even if values differ by orders of magnitude.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from katib.figures.axes import Axis, axes_of, number, pairs_figure, parameter_axis, scales_of
from katib.figures.data import ExperimentData, FigureOptions
from katib.figures.marks import add_best, add_groups, add_legend, mark_groups, spread_out
from katib.figures.style import add_note, html_safe
from katib.figures.targets import RankingMetric, Shades, by_telling, sampled, target_of
from katib.figures.trials import Floats, Rows, TrialTable

if TYPE_CHECKING:
    import plotly.graph_objects as go

_FEW, _MOST = 4, 5
"""Parameters shown by default, and at most."""
_MOST_MARKS = 3_600
"""Marks in all pairs together."""
_PART_HEIGHT, _PART_WIDTH = 220, 180
_ALONE_HEIGHT = 420
_TICKS = 5


def draw_rank(data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw each pair of the chosen parameters (5 at most), or of the 4 most telling ones."""
    trials, target = data.trials, target_of(data.trials, choice.metric)
    names = shown_parameters(trials, choice)
    pairs = list(combinations(names, 2))
    rows = sampled(target, min(1_500, _MOST_MARKS // len(pairs)), 100)
    axes = {name: parameter_axis(trials, name, rows) for name in names}
    side = len(names) - 1
    figure = pairs_figure(side, f"{html_safe([data.name])[0]}: rank of {html_safe([target.name])[0]}")
    shades = ranks_of(target)
    places = {
        axis.name: spread_out(axis, trials.values[axis.name][rows], rows, i) for i, axis in enumerate(axes.values())
    }
    for one, other in pairs:
        line, column = names.index(other), names.index(one) + 1
        _add_pair(figure, trials, target, rows, (axes[one], axes[other]), places, (line, column))
    _lay_out(figure, axes, side)
    add_legend(figure, mark_groups(trials, rows))
    height = _ALONE_HEIGHT if side == 1 else _PART_HEIGHT * side + 130
    scales = [
        scales_of(axis, trials.values[name][rows]).meta(*axes_of(place, side), name=name)
        for place, (name, axis) in enumerate(axes.items())
    ]
    meta = shades.meta | {"least_width": _PART_WIDTH * side, "values": scales}
    figure.update_layout(height=height, coloraxis=shades.axis(), legend_traceorder="reversed", meta=meta)
    note = f"{len(rows):,} of {len(target.rows):,} measured trials drawn" if len(rows) < len(target.rows) else ""
    if len(names) < len(trials.values):
        note += f"{'; ' if note else ''}{len(names)} of {len(trials.values)} parameters shown"
    add_note(figure, note)
    return figure


def shown_parameters(trials: TrialTable, choice: FigureOptions) -> list[str]:
    """Return at least two parameters: the chosen ones, or the most telling in the order of the search space."""
    telling = by_telling(trials, choice.metric)
    names = list(choice.parameters[:_MOST])
    if not names:
        kept = telling[:_FEW]
        return [name for name in trials.values if name in kept]
    return names if len(names) > 1 else [*names, *[name for name in telling if name not in names][:1]]


def ranks_of(target: RankingMetric) -> Shades:
    """Return colours by rank: evenly from the worst to the best, with the values at quarters of them."""
    costs = np.sort(target.costs[target.rows])
    values = np.quantile(costs, np.linspace(1, 0, 5))
    signed = -1.0 if target.maximize else 1.0
    words = ("worst", "", "median", "", "best")
    texts = [f"{number(signed * value)} {word}".strip() for value, word in zip(values, words, strict=True)]
    feasible = bool(target.feasible[target.rows].all())
    return Shades(0.0, 1.0, 0.0 if feasible else 0.06, tuple(texts))


def rank_shares(target: RankingMetric, rows: Rows) -> Floats:
    """Return the ranks of some trials among all measured ones: 0 is the best, 1 the worst, ties are equal."""
    costs = np.sort(target.costs[target.rows])
    below = np.searchsorted(costs, target.costs[rows], side="left")
    above = np.searchsorted(costs, target.costs[rows], side="right") - 1
    return (below + above) / 2 / max(len(costs) - 1, 1)


def _add_pair(
    figure: go.Figure,
    trials: TrialTable,
    target: RankingMetric,
    rows: Rows,
    axes: tuple[Axis, Axis],
    places: dict[str, Floats],
    part: tuple[int, int],
) -> None:
    x, y = axes
    shades = ranks_of(target)
    colours = np.where(target.feasible[rows], shades.of(rank_shares(target, rows)), 0.0).astype(np.float32)
    add_groups(
        figure,
        mark_groups(trials, rows),
        (places[x.name], places[y.name]),
        {"size": 6, "opacity": 0.85, "color": colours},
        html_safe(list(trials.names[rows])),
        "%{customdata}<extra></extra>",
        row=part[0],
        col=part[1],
    )
    if (best := target.best) is not None:
        place_x, place_y = (float(axis.coordinates(trials.values[axis.name][[best]])[0]) for axis in axes)
        add_best(figure, place_x, place_y, str(trials.names[best]), legend=part == (1, 1), row=part[0], col=part[1])


def _lay_out(figure: go.Figure, axes: dict[str, Axis], side: int) -> None:
    """Place the axes of rows and columns; the titles are at the left and at the bottom."""
    names = list(axes)
    for line in range(1, side + 1):
        for column in range(1, line + 1):
            x, y = axes[names[column - 1]].layout(_TICKS), axes[names[line]].layout(_TICKS)
            x["title"], y["title"] = (x["title"] if line == side else None), (y["title"] if column == 1 else None)
            figure.update_xaxes(x, row=line, col=column)
            figure.update_yaxes(y, row=line, col=column)
