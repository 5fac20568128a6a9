"""Contour: the objective over the plane of two parameters, interpolated between the trials.

Interpolation is by inverse distance [Shepard1968] over the 12 nearest trials, on axes of equal length. Places far from
all trials are empty. Choices are not ordered: another choice of a categorical parameter is a whole axis away, so it
counts only if there is nothing nearer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from katib.figures.axes import CATEGORICAL, Axis, parameter_axis, scales_of
from katib.figures.data import ExperimentData, FigureOptions
from katib.figures.marks import add_best, add_groups, add_legend, mark_groups, spread_out, texts_of
from katib.figures.style import add_note, html_safe, new_figure
from katib.figures.targets import RankingMetric, Shades, by_telling, sampled, shades_of, target_of
from katib.figures.trials import Floats, Rows, TrialTable

if TYPE_CHECKING:
    import plotly.graph_objects as go

_CELLS = 50
"""Cells of a continuous axis."""
_NEIGHBOURS = 12
_FAR = 0.25
"""Distance from all trials, in shares of an axis, beyond which the picture is empty."""
_MOST_KNOWN = 5_000
"""Maximum number of trials of the interpolation."""
_MOST_MARKS = 800


def draw_contour(data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw the contour over the first two chosen parameters, or the two most telling ones."""
    trials, target = data.trials, target_of(data.trials, choice.metric)
    names = pair_of(trials, choice)
    known = sampled(target, _MOST_KNOWN, _MOST_KNOWN // 5)
    rows = sampled(target, _MOST_MARKS, _MOST_MARKS // 4)
    x, y = (parameter_axis(trials, name, known) for name in names)
    shades = shades_of(target, known)
    figure = new_figure(title=f"{html_safe([data.name])[0]}: contour of {html_safe([target.name])[0]}")
    _add_surface(figure, trials, target, known, x, y, shades)
    _add_marks(figure, trials, target, rows, x, y, shades)
    add_legend(figure, mark_groups(trials, rows))
    figure.update_layout(
        xaxis=x.layout() | {"showgrid": False},
        yaxis=y.layout() | {"showgrid": False, "nticks": 7},
        coloraxis=shades.axis(),
        legend_traceorder="reversed",
        meta=shades.meta
        | {
            "values": [
                scales_of(axis, trials.values[axis.name][known]).meta(place)
                for axis, place in ((x, "xaxis"), (y, "yaxis"))
            ]
        },
    )
    if len(rows) < len(target.rows):
        add_note(
            figure, f"{len(rows):,} of {len(target.rows):,} measured trials marked; colours rest on {len(known):,}"
        )
    return figure


def pair_of(trials: TrialTable, choice: FigureOptions) -> tuple[str, str]:
    """Return the two parameters to show."""
    names = [*choice.parameters[:2]]
    names += [name for name in by_telling(trials, choice.metric) if name not in names]
    return names[0], names[1]


def interpolated(points: Floats, values: Floats, asked: Floats) -> Floats:
    """Interpolate values at some points from those at others; NaN if all of them are far away.

    Args:
        points: Points with known values, shape (n, 2), in shares of the axes.
        values: The known values, shape (n,).
        asked: Points to interpolate, shape (m, 2).
    """
    from scipy.spatial import cKDTree

    neighbours = min(_NEIGHBOURS, len(points))
    distances, found = cKDTree(points).query(asked, k=neighbours)
    distances, found = distances.reshape(-1, neighbours), found.reshape(-1, neighbours)
    weights = 1.0 / (distances**2 + 1e-6)
    result = np.sum(weights * values[found], axis=1) / np.sum(weights, axis=1)
    return np.where(distances[:, 0] <= _FAR, result, np.nan)


def _add_surface(
    figure: go.Figure, trials: TrialTable, target: RankingMetric, known: Rows, x: Axis, y: Axis, shades: Shades
) -> None:
    """Add colours between the trials: cells if an axis has choices, otherwise lines of equal values."""
    columns = [trials.values[axis.name][known] for axis in (x, y)]
    present = ~np.isnan(columns[0]) & ~np.isnan(columns[1])
    if not present.any():
        return
    points = np.stack([_share(axis, axis.places(column)) for axis, column in zip((x, y), columns, strict=True)], axis=1)
    grid_x, grid_y = _grid(x), _grid(y)
    asked = np.stack(np.meshgrid(_share(x, grid_x), _share(y, grid_y)), axis=-1).reshape(-1, 2)
    costs = np.clip(target.costs[known], shades.best, shades.worst)
    field = interpolated(points[present], costs[present], asked)
    z = shades.of(field).reshape(len(grid_y), len(grid_x)).astype(np.float32)
    place: dict[str, Any] = {
        "x": np.power(10.0, grid_x) if x.scale == "log" else grid_x,
        "y": np.power(10.0, grid_y) if y.scale == "log" else grid_y,
        "z": z,
        "coloraxis": "coloraxis",
        "hoverinfo": "skip",
        "opacity": 0.85,
    }
    if CATEGORICAL in (x.scale, y.scale):
        figure.add_heatmap(**place)
    else:
        lines = {"start": 0.1, "end": 0.9, "size": 0.1, "coloring": "heatmap"}
        figure.add_contour(**place, contours=lines, line={"width": 0.5, "color": "rgba(255,255,255,0.5)"})


def _grid(axis: Axis) -> Floats:
    if axis.scale == CATEGORICAL:
        return np.arange(len(axis.choices), dtype=np.float64)
    return np.linspace(axis.low, axis.high, _CELLS)


def _share(axis: Axis, places: Floats) -> Floats:
    """Return places in shares of the axis; choices are a whole axis apart."""
    return places if axis.scale == CATEGORICAL else (places - axis.low) / (axis.high - axis.low)


def _add_marks(
    figure: go.Figure, trials: TrialTable, target: RankingMetric, rows: Rows, x: Axis, y: Axis, shades: Shades
) -> None:
    xs, ys = (spread_out(axis, trials.values[axis.name][rows], rows, seed) for seed, axis in enumerate((x, y)))
    colours = shades.of_rows(target, rows).astype(np.float32)
    texts = [texts_of(trials, axis.name, rows) for axis in (x, y)]
    labels = list(zip(html_safe(list(trials.names[rows])), *texts, map(str, target.values[rows]), strict=True))
    lines = [f"{name}: %{{customdata[{i + 1}]}}" for i, name in enumerate(html_safe([x.name, y.name, target.name]))]
    add_groups(
        figure,
        mark_groups(trials, rows),
        (xs, ys),
        {"size": 7, "color": colours, "line": {"color": "#FFFFFF", "width": 1}},
        labels,
        "<br>".join(["%{customdata[0]}", *lines]) + "<extra></extra>",
    )
    if (best := target.best) is not None:
        place_x, place_y = (float(axis.coordinates(trials.values[axis.name][[best]])[0]) for axis in (x, y))
        add_best(figure, place_x, place_y, str(trials.names[best]))
