"""Parallel coordinates: a line per trial through its parameters and its results.

The JSON has one trace of the type `parcoords`; files and notebooks draw it with Plotly. A page may not: Plotly's WebGL
layer compiles code while it runs, which `script-src 'self'` forbids. There `katib/doors/ui/static/parallel.js` draws
the same JSON. `layout.meta` describes the lines and the axes:

    {"trials": ["demo-a1b2c3d4", ...],            the drawn ones, in the order of `dimensions[i].values`
     "axes": [                                    one for each of `dimensions`
       {"name": "feasible", "of": "feasible", "scale": "categorical", "choices": ["no", "yes"], ...},
       {"name": "lr", "of": "parameter", "type": "double", "scale": "log", "absent": null},
       {"name": "optimizer", "of": "parameter", "type": "categorical", "scale": "categorical",
        "choices": ["adam", "sgd"], "absent": -1.0},
       {"name": "accuracy", "of": "metric", "scale": "linear", ...}],
     "rows": [17, ...],
     "least_width": 600,                          0 if there are few axes
     "best": "demo-a1b2c3d4",                     null without one
     "dark": {"coloraxis": {...}}}                changes of the layout on a dark page

Values are places on the axis: log10 of the value if `scale` is `log`, the index of the choice if it is `categorical`,
otherwise the value itself. `absent` is the place of trials without the parameter; null if all have it. `choices` is
missing if there are too many to list: such an axis cannot become a condition. An axis with outliers has their number,
`beyond`, and the range of all values, `ends`. The axis `feasible` exists only if the drawn trials differ in it. `rows`
are the indices of the trials in the order of creation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from katib.figures.axes import CATEGORICAL, Axis, metric_axis, parameter_axis, single
from katib.figures.data import ExperimentData, FigureOptions, measure_of
from katib.figures.style import add_note, html_safe, new_figure
from katib.figures.targets import Shades, most_telling, sampled, shades_of, target_of
from katib.figures.trials import Floats, Rows, TrialTable

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_LINES = 1_500
_MOST_VALUES = 20_000
"""Points of all lines together, which bounds the size of the JSON for spaces of many parameters."""
_BEST_LINES = 300
_MOST_AXES = 20
"""Parameters shown by default: more axes leave no room for their names."""
_MOST_CHOICES = 200
_FEASIBLE = ("no", "yes")


@dataclass(frozen=True, slots=True)
class _ParallelAxis:
    """An axis with its values.

    Attributes:
        of: `parameter`, `metric` or `feasible`.
    """

    axis: Axis
    values: Floats
    of: str
    type: str = ""


def draw_parallel(data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw parallel coordinates of at most 1,500 measured trials, the best on top."""
    trials = data.trials
    target = target_of(trials)
    shown = choice.parameters or most_telling(trials, _MOST_AXES)
    rows = lines_of(trials, min(_MOST_LINES, _MOST_VALUES // (len(shown) + len(trials.objectives))))
    dimensions = _dimensions(trials, shown, rows)
    shades = shades_of(target, rows)
    figure = new_figure(title=f"{data.name}: parallel coordinates")
    figure.add_parcoords(
        dimensions=[_drawn(dimension) for dimension in dimensions],
        line={"color": shades.of_rows(target, rows).astype(np.float32), "coloraxis": "coloraxis"},
        labelangle=-20 if len(dimensions) > _SLANTED else 0,
        labelside="top",
    )
    figure.update_layout(
        coloraxis=shades.axis(),
        margin={"l": 90, "r": 40, "t": 120 if len(dimensions) > _SLANTED else 100, "b": 50},
        meta=_meta(trials, rows, dimensions, shades),
    )
    measured, notes = int(measure_of(trials).drawn.sum()), []
    if len(rows) < measured:
        notes.append(
            f"{len(rows):,} of {measured:,} measured trials drawn: the best, the extremes and some of the others"
        )
    if len(trials) > measured:
        notes.append(f"{len(trials) - measured:,} trials without a value not drawn")
    if len(shown) < len(trials.values):
        notes.append(f"{len(shown)} of {len(trials.values)} parameters shown")
    beyond = (
        f"{one.axis.beyond} values of {one.axis.name} lie beyond the axis" for one in dimensions if one.axis.beyond
    )
    add_note(figure, "; ".join(notes), *html_safe(list(beyond)))
    return figure


_BROAD = 6
_BROAD_WIDTH = 600


def is_broad(axes: int) -> bool:
    """Return whether so many axes take the full width of a page."""
    return axes >= _BROAD


_SLANTED = 8
"""Number of axes above which their names are written at an angle."""


def lines_of(trials: TrialTable, most: int) -> Rows:
    """Return at most `most` measured trials, from the worst to the best, so that the best are drawn last.

    The best 300, those with the extremes of every parameter and objective, and a random sample of the rest.
    """
    columns = (*trials.values.values(), *(trials.metrics[objective.name] for objective in trials.objectives))
    return sampled(target_of(trials), most, min(_BEST_LINES, most // 2), columns)


def _dimensions(trials: TrialTable, names: tuple[str, ...], rows: Rows) -> list[_ParallelAxis]:
    feasible, dimensions = trials.feasible[rows].astype(np.float64), []
    if 0 < feasible.sum() < len(rows):
        axis = Axis("feasible", CATEGORICAL, 0.0, 1.0, _FEASIBLE)
        dimensions.append(_ParallelAxis(axis, feasible, axis.name))
    for name in names:
        axis = parameter_axis(trials, name, rows)
        dimensions.append(_ParallelAxis(axis, trials.values[name][rows], "parameter", trials.parameter(name).type))
    for objective in (*trials.objectives[1:], trials.objective):
        values = trials.metrics[objective.name][rows]
        axis = metric_axis(objective.name, values, maximize=objective.maximize)
        dimensions.append(_ParallelAxis(axis, values, "metric"))
    return dimensions


def _drawn(dimension: _ParallelAxis) -> dict[str, Any]:
    """Return a dimension of Plotly, in single precision, which is finer than a screen."""
    axis = dimension.axis
    ticks, texts = axis.ticks()
    ends = axis.range  # without a tick at its ends Plotly draws the axis only from the first tick to the last one
    places = axis.places(dimension.values)
    few = axis.scale == CATEGORICAL and len(axis.choices) < np.iinfo(np.int8).max
    return {
        "label": html_safe([axis.name])[0],
        "values": places.astype(np.int8) if few else single(places),
        "range": list(ends),
        "tickvals": [ends[0], *ticks, ends[1]],
        "ticktext": ["", *texts, ""],
    }


def _meta(trials: TrialTable, rows: Rows, dimensions: list[_ParallelAxis], shades: Shades) -> dict[str, Any]:
    axes = []
    for dimension in dimensions:
        axis = dimension.axis
        entry: dict[str, Any] = {"name": axis.name, "of": dimension.of, "scale": axis.scale, "absent": axis.absent}
        if dimension.type:
            entry["type"] = dimension.type
        if axis.scale == CATEGORICAL and len(axis.choices) <= _MOST_CHOICES:
            entry["choices"] = list(axis.choices)
        if axis.ends:
            entry |= {"beyond": axis.beyond, "ends": replace(axis, low=axis.ends[0], high=axis.ends[1]).range}
        axes.append(entry)
    best = measure_of(trials).best
    return {
        "trials": list(trials.names[rows]),
        "rows": rows.tolist(),
        "axes": axes,
        "least_width": _BROAD_WIDTH if is_broad(len(dimensions)) else 0,
        "best": None if best is None else str(trials.names[best]),
        **shades.meta,
    }
