"""Slices: the objective against each parameter, one small picture for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from katib.figures.axes import Axis, parameter_axis, scales_of, value_axis
from katib.figures.data import ExperimentData, FigureOptions
from katib.figures.marks import add_best, add_groups, add_legend, mark_groups, spread_out
from katib.figures.style import add_note, html_safe, new_figure
from katib.figures.targets import GOOD_BRIGHT, GOOD_DARK, RankingMetric, most_telling, sampled, scale_of, target_of
from katib.figures.trials import Rows, TrialTable

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_PARTS = 12
_COLUMNS = 4
_MOST_MARKS = 3_600
"""Marks in all parts together: each carries the name of its trial."""
_PART_HEIGHT = 260
_PART_WIDTH = 180
_TICKS = 5


def draw_slices(data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw the objective against each of at most 12 parameters, newer trials in stronger colours."""
    from plotly.subplots import make_subplots

    trials, target = data.trials, target_of(data.trials, choice.metric)
    names = choice.parameters[:_MOST_PARTS] or most_telling(trials, _MOST_PARTS, choice.metric)
    rows = np.sort(sampled(target, min(1_000, _MOST_MARKS // len(names)), 100))
    columns = min(_COLUMNS, len(names))
    lines = -(-len(names) // columns)
    figure = new_figure(title=f"{html_safe([data.name])[0]}: slices")
    figure = make_subplots(
        rows=lines,
        cols=columns,
        shared_yaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=0.3 / lines,
        figure=figure,
    )
    y = value_axis(target.values[rows], maximize=target.maximize, total=len(target.rows))
    metas = []
    for place, name in enumerate(names):
        row, column = divmod(place, columns)
        axis = parameter_axis(trials, name, rows)
        _add_part(figure, trials, target, rows, axis, row + 1, column + 1)
        metas.append(scales_of(axis, trials.values[name][rows]).meta(f"xaxis{place + 1 if place else ''}", name=name))
    [title] = html_safe([target.name])
    for column in range(1, columns + 1):
        figure.update_yaxes({"zeroline": False, "title": {"text": "" if column > 1 else title}} | y.layout, col=column)
    add_legend(figure, mark_groups(trials, rows))
    axes = [f"yaxis{place + 1 if place else ''}" for place in range(lines * columns)]
    bar = {"title": {"text": "trial"}, "thickness": 12}
    figure.update_layout(
        coloraxis={"cmin": 1, "cmax": max(len(trials), 2), "colorbar": bar, "colorscale": scale_of(GOOD_DARK)},
        meta={
            "least_width": _PART_WIDTH * columns,
            "values": [y.meta(*axes, name=target.name), *metas],
            "dark": {"coloraxis": {"colorscale": scale_of(GOOD_BRIGHT)}},
        },
        height=_PART_HEIGHT * lines + 130,
        legend_traceorder="reversed",
    )
    sample = f"{len(rows):,} of {len(target.rows):,} measured trials drawn: the best, and of the others by lot"
    add_note(figure, sample if len(rows) < len(target.rows) else "", y.note)
    return figure


def _add_part(
    figure: go.Figure,
    trials: TrialTable,
    target: RankingMetric,
    rows: Rows,
    axis: Axis,
    line: int,
    column: int,
) -> None:
    first = line == column == 1
    x = spread_out(axis, trials.values[axis.name][rows], rows, line * _COLUMNS + column)
    add_groups(
        figure,
        mark_groups(trials, rows),
        (x, target.values[rows]),
        {"size": 6, "opacity": 0.8, "color": (rows + 1).astype(np.int32)},
        html_safe(list(trials.names[rows])),
        "%{customdata}<br>%{y}<extra></extra>",
        row=line,
        col=column,
    )
    figure.update_xaxes(axis.layout(_TICKS), row=line, col=column)
    if (best := target.best) is not None:
        place = float(axis.coordinates(trials.values[axis.name][[best]])[0])
        name = str(trials.names[best])
        add_best(figure, place, float(target.values[best]), name, legend=first, row=line, col=column)
