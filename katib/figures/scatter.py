"""Scatter plot: any two of parameters, metrics, the duration and the number of a trial, with a third as colour.

A matrix shows each pair of several of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from katib.figures.axes import (
    CATEGORICAL,
    LINEAR,
    LOG,
    Axis,
    Ordinary,
    ValueAxis,
    axes_of,
    number,
    pairs_figure,
    parameter_axis,
    scales_of,
    value_axis,
)
from katib.figures.data import ExperimentData, FigureOptions, measure_of
from katib.figures.marks import add_best, add_groups, add_legend, mark_groups, spread_out
from katib.figures.style import MOST_POINTS, add_note, fair_rows, html_safe, new_figure, places, shown_words
from katib.figures.targets import GOOD_BRIGHT, GOOD_DARK, most_telling, scale_of
from katib.figures.trials import Floats, Rows, TrialTable

if TYPE_CHECKING:
    import plotly.graph_objects as go

DURATION, TRIAL = "duration", "trial"
_BAR_STEPS = 5
MOST_AXES = 6
"""Maximum number of quantities in a matrix."""
_FEW, _TICKS = 3, 5
_MOST_MARKS = 4_500
"""Marks in all parts together: each carries the name of its trial."""
_PART_HEIGHT, _PART_WIDTH, _ALONE_HEIGHT = 170, 150, 420
_NOTHING = Ordinary(0.0, 1.0, 0)


@dataclass(frozen=True, slots=True)
class _Column:
    """A quantity of the drawn trials.

    Attributes:
        values: Its values; the index of its choice for a categorical parameter.
        parameter: The axis of a parameter; None for other quantities.
        axis: The axis of other quantities, and of a parameter of positive numbers, which may have two scales.
        maximize: Whether larger is better; None: no direction.
    """

    name: str
    values: Floats
    parameter: Axis | None
    axis: ValueAxis
    maximize: bool | None


def scatter_columns(trials: TrialTable) -> list[str]:
    """Return the names of all quantities that a scatter plot can show."""
    return list(dict.fromkeys((*trials.values, *trials.metrics, DURATION, TRIAL)))


def draw_scatter(data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw a mark per ended trial: the objective by the most telling parameter, coloured by duration, by default."""
    trials = data.trials
    names = [*choice.axes, *_default_axes(trials)[len(choice.axes) :]][:3]
    known = _known(trials, names)
    best = measure_of(trials).best
    rows = fair_rows(places(known), MOST_POINTS, places(known & (np.arange(len(trials)) == best)))
    x, y, third = (_column(trials, name, rows) for name in names)
    figure = new_figure(title=f"{html_safe([data.name])[0]}: scatter plot")
    points = [_coordinates(column, rows, seed) for seed, column in enumerate((x, y))]
    hover = "<br>".join(["%{customdata}", *(f"{html_safe([c.name])[0]}: %{{{at}}}" for c, at in ((x, "x"), (y, "y")))])
    colours, bar = _colours(third)
    marker = {"size": 7, "opacity": 0.85, "color": colours}
    groups = list(mark_groups(trials, rows))
    add_groups(
        figure, groups, (points[0], points[1]), marker, html_safe(list(trials.names[rows])), f"{hover}<extra></extra>"
    )
    add_legend(figure, groups)
    if best is not None and (found := np.flatnonzero(rows == best)).size:
        add_best(figure, float(points[0][found[0]]), float(points[1][found[0]]), str(trials.names[best]))
    figure.update_layout(
        xaxis=_layout(x),
        yaxis=_layout(y),
        coloraxis=bar,
        meta={
            "values": [column.axis.meta(axis) for column, axis in ((x, "xaxis"), (y, "yaxis")) if column.axis.views],
            "dark": {"coloraxis": {"colorscale": scale_of(GOOD_BRIGHT)}},
        },
    )
    notes = [
        column.axis.note and f"{column.axis.note} of {column.name}" for column in (x, y) if column.parameter is None
    ]
    add_note(figure, shown_words(len(rows), int(known.sum())), *html_safe(notes))
    return figure


def draw_matrix(data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw each pair of at most six quantities, by default the most telling parameters, coloured by the objective."""
    trials = data.trials
    objective = trials.objective.name
    names = list(dict.fromkeys(choice.axes or (*most_telling(trials, _FEW), objective, DURATION)))[:MOST_AXES]
    names += [name for name in _default_axes(trials) if name not in names][: max(0, 2 - len(names))]
    side = len(names) - 1
    known, best = _known(trials, [*names, objective]), measure_of(trials).best
    is_best = known & (np.arange(len(trials)) == best)
    rows = fair_rows(places(known), _MOST_MARKS // (side * (side + 1) // 2), places(is_best))
    columns = [_column(trials, name, rows) for name in names]
    outside = [f"{c.axis.beyond:,} outliers of {c.name} are outside" for c in columns if c.axis.beyond]
    points = [_coordinates(column, rows, seed) for seed, column in enumerate(columns)]
    colours, bar = _colours(_column(trials, objective, rows))
    figure = pairs_figure(side, f"{html_safe([data.name])[0]}: matrix")
    groups, labels = list(mark_groups(trials, rows)), html_safe(list(trials.names[rows]))
    titles = html_safe(names)
    for line, column in [(row, below) for row in range(1, side + 1) for below in range(1, row + 1)]:
        x, y = _layout(columns[column - 1], _TICKS), _layout(columns[line], _TICKS)
        for layout, one in ((x, columns[column - 1]), (y, columns[line])):
            if one.axis.views and one.parameter is None:  # autorange fails for shared axes of some parts
                layout["range"] = one.axis.range_of(one.axis.scale)
        x["title"], y["title"] = (x["title"] if line == side else None), (y["title"] if column == 1 else None)
        figure.update_xaxes(x, row=line, col=column)
        figure.update_yaxes(y, row=line, col=column)
        hover = f"%{{customdata}}<br>{titles[column - 1]}: %{{x}}<br>{titles[line]}: %{{y}}<extra></extra>"
        marker = {"size": 5, "opacity": 0.85, "color": colours}
        at = points[column - 1], points[line]
        add_groups(figure, groups, at, marker, labels, hover, row=line, col=column)
        if (found := np.flatnonzero(rows == best)).size:
            star, first = [float(one[found[0]]) for one in at], line == column == 1
            add_best(figure, star[0], star[1], str(trials.names[best]), legend=first, row=line, col=column)
    add_legend(figure, groups)
    metas = [
        _fixed(column.axis).meta(*axes_of(place, side), name=column.name)
        for place, column in enumerate(columns)
        if column.axis.views
    ]
    height = _ALONE_HEIGHT if side == 1 else _PART_HEIGHT * side + 130
    dark = {"coloraxis": {"colorscale": scale_of(GOOD_BRIGHT)}}
    figure.update_layout(
        height=height, coloraxis=bar, meta={"values": metas, "least_width": _PART_WIDTH * side, "dark": dark}
    )
    dropped = len(set(choice.axes)) - len(names)
    left_out = f"the first {MOST_AXES} of {len(set(choice.axes))} are drawn" if dropped > 0 else ""
    add_note(figure, shown_words(len(rows), int(known.sum())), *html_safe(outside), left_out)
    return figure


def _fixed(axis: ValueAxis) -> ValueAxis:
    """Return an axis whose outliers cannot be shown."""
    return replace(axis, views={scale: view._replace(beyond=0) for scale, view in axis.views.items()})


def scatter_obstacle(data: ExperimentData) -> str:
    """Return an obstacle if no trial has a value, or none has a parameter."""
    if not data.trials.values:
        return "The trials have no parameters."
    known = _known(data.trials, _default_axes(data.trials))
    return "" if known.any() else "No trial has ended with a value yet."


def _known(trials: TrialTable, names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return the mask of trials that have ended with all of these quantities."""
    columns = [np.isfinite(_values(trials, name)) for name in names]
    found: npt.NDArray[np.bool_] = np.logical_and.reduce([*columns, trials.in_states("Succeeded", "EarlyStopped")])
    return found


def _default_axes(trials: TrialTable) -> tuple[str, str, str]:
    return most_telling(trials, 1)[0], trials.objective.name, DURATION


def _values(trials: TrialTable, name: str) -> Floats:
    if name in trials.values:
        return trials.values[name]
    if name in trials.metrics:
        return trials.metrics[name]
    return trials.durations if name == DURATION else np.arange(1.0, len(trials) + 1)


def _column(trials: TrialTable, name: str, rows: Rows) -> _Column:
    values = _values(trials, name)[rows]
    if name in trials.values:
        axis = parameter_axis(trials, name, rows)
        return _Column(name, values, axis, scales_of(axis, values), None)
    directions = {objective.name: objective.maximize for objective in trials.objectives} | {DURATION: False}
    maximize, scales = directions.get(name), (LINEAR,) if name == TRIAL else (LINEAR, LOG)
    return _Column(name, values, None, value_axis(values, maximize=maximize, scales=scales), maximize)


def _coordinates(column: _Column, rows: Rows, seed: int) -> Floats:
    return column.values if column.parameter is None else spread_out(column.parameter, column.values, rows, seed)


def _layout(column: _Column, *ticks: int) -> dict[str, Any]:
    if column.parameter is not None:
        return column.parameter.layout(*ticks)
    unit = " (seconds)" if column.name == DURATION else ""
    return {"title": {"text": html_safe([column.name])[0] + unit}, "zeroline": False, **column.axis.layout}


def _colours(column: _Column) -> tuple[Floats, dict[str, Any]]:
    """Return the colours of the trials as numbers, and Plotly's `coloraxis`: good values, or large ones, stand out."""
    bar: dict[str, Any] = {"thickness": 12, "title": {"text": html_safe([column.name])[0]}}
    values, scale = column.values, column.axis.scale
    if column.parameter is not None and column.parameter.scale == CATEGORICAL:
        ticks, texts = column.parameter.ticks()
        low, high = 0.0, max(column.parameter.high, 1.0)
    else:
        values = np.log10(values) if scale == LOG else values
        low, high, _ = column.axis.views.get(scale, _NOTHING)
        ticks = list(np.linspace(low, high, _BAR_STEPS))
        texts = [number(float(10**tick if scale == LOG else tick)) for tick in ticks]
    form = {"cmin": low, "cmax": high if high > low else low + 1, "colorscale": scale_of(GOOD_DARK)}
    bar |= {"tickvals": ticks, "ticktext": html_safe(texts)}
    return values, form | {"reversescale": column.maximize is False, "colorbar": bar}
