"""The curve of one metric: of one trial while it runs, or of several trials in one plot.

A script may append readings to the drawn ones. For that the figure describes its horizontal axis in `layout.meta`, and
each trace its content in `meta`; `smoothed` keeps the state of the moving average.

Source of the smoothing: exponential moving average, divided by the sum of its weights, so that it does not start at 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from katib.figures.axes import hovered, time_unit
from katib.figures.curves import CurveAxis
from katib.figures.data import Curve
from katib.figures.groups import add_groups_of_lines
from katib.figures.style import (
    MOST_LINES,
    RED,
    add_note,
    html_safe,
    line_look,
    new_figure,
    places,
    spaced,
    thinned_rows,
)
from katib.figures.trials import Floats

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_TRIALS = MOST_LINES
MOST_READINGS = 2_000
"""Points drawn of one curve; of a longer one the extremes."""
_MOST_ODD = 200
"""Marks of non-finite readings, evenly selected."""
MOST_SMOOTHING = 0.99

_FEW = 60
"""Maximum number of readings with a mark, so that a single one is visible."""
_RUG = 0.02


@dataclass(frozen=True, slots=True)
class CurveLook:
    """Display options of curves.

    Attributes:
        by: Unit of the horizontal axis, `step` or `time`.
        log: Whether the vertical axis is logarithmic.
        smoothing: Weight of the past in the moving average, from 0 (none) to 0.99; the readings stay behind it.
        most: Approximate number of readings drawn of each curve.
    """

    by: str = "step"
    log: bool = False
    smoothing: float = 0.0
    most: int = MOST_READINGS


def draw_trial_curves(
    title: str,
    metric: str,
    curves: Mapping[str, Curve],
    look: CurveLook,
    groups: Mapping[str, Sequence[int]] | None = None,
) -> go.Figure:
    """Draw the curves of one metric in one plot: readings as lines, non-finite ones as marks below.

    Args:
        metric: Title of the vertical axis.
        curves: By the name of the trial, 14 at most; one without readings is listed below.
        groups: Indices of trials by the name of a group, whose mean is drawn in place of its trials; None: no groups.
    """
    axis = _axis([curve for curve in curves.values() if len(curve.values)], look.by)
    [shown_title, shown_metric] = html_safe([title, metric])
    figure = new_figure(title=shown_title, x=axis.title, y=shown_metric)
    figure.update_layout(
        yaxis={"type": "log" if look.log else "linear"},
        yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
        showlegend=len(curves) > 1 or look.smoothing > 0,
        meta={"by": axis.by, "unit": axis.unit.seconds, "log": look.log, "smoothing": look.smoothing, "rug": _RUG},
    )
    if groups is not None:
        lines = [(axis.places(one), smoothed(one.values, look.smoothing)[0]) for one in curves.values()]
        add_note(figure, f"{add_groups_of_lines(figure, groups, lines, held=False)}, of the trials that come so far")
        return figure
    for number, (name, curve) in enumerate(list(curves.items())[:MOST_TRIALS]):
        _add_curve(figure, name, curve, axis, look, number, alone=len(curves) == 1)
    _say_what_is_missing(figure, curves, look, axis)
    return figure


def smoothed(values: Floats, weight: float) -> tuple[Floats, float, int]:
    """Return the moving average of some values, its inner state after the last one, and the number of values used.

    Args:
        values: In order; non-finite ones are skipped, and are NaN in the result.
        weight: Weight of the past, in [0, 1).
    """
    averages, last, count = np.full(len(values), np.nan), 0.0, 0
    for place in np.flatnonzero(np.isfinite(values)):
        last = weight * last + (1 - weight) * float(values[place])
        count += 1
        averages[place] = last / (1 - weight**count)
    return averages, last, count


def _add_curve(
    figure: go.Figure, name: str, curve: Curve, axis: CurveAxis, look: CurveLook, number: int, *, alone: bool
) -> None:
    [shown] = html_safe([name])
    x, finite = axis.places(curve), np.isfinite(curve.values)
    odd = spaced(places(~finite), _MOST_ODD)
    shown_rows = np.union1d(thinned_rows(curve.values, places(finite), look.most), odd)
    line = {"width": 2, **line_look(number)}  # the first colour is BLUE, that of a single curve
    few = len(shown_rows) <= _FEW
    hover = f"{hovered('x', x)}: {hovered('y', curve.values)}<extra>" + ("" if alone else shown) + "</extra>"
    behind = look.smoothing > 0
    figure.add_scatter(
        x=_plain(x[shown_rows]),
        y=_plain(np.where(finite, curve.values, np.nan)[shown_rows]),
        mode="lines+markers" if few and not behind else "lines",
        name="readings" if alone else shown,
        legendgroup=shown,
        showlegend=alone or not behind,
        line={**line, "width": 1} if behind else line,
        marker={"size": 5},
        opacity=0.35 if behind else 1.0,
        hovertemplate=hover,
        meta={"kind": "readings", "trial": name},
    )
    if behind:
        averages, last, count = smoothed(curve.values, look.smoothing)
        figure.add_scatter(
            x=_plain(x[shown_rows]),
            y=_plain(averages[shown_rows]),
            mode="lines",
            connectgaps=True,
            name="smoothed" if alone else shown,
            legendgroup=shown,
            line=line,
            hovertemplate=hover,
            meta={"kind": "smoothed", "trial": name, "last": last, "count": count},
        )
    if len(odd) or alone:
        figure.add_scatter(
            x=_plain(x[odd]),
            y=[_RUG] * len(odd),
            yaxis="y2",
            mode="markers",
            name="not a number" if alone else f"{shown}: not a number",
            legendgroup=shown,
            showlegend=len(odd) > 0,
            marker={"symbol": "x", "size": 8 if len(odd) <= _FEW else 4, "color": RED if alone else line["color"]},
            hovertemplate=hovered("x", x) + ": no finite number<extra>" + ("" if alone else shown) + "</extra>",
            meta={"kind": "odd", "trial": name},
        )


def _axis(curves: Sequence[Curve], by: str) -> CurveAxis:
    """Return the requested axis, or the closest that all of these curves have."""
    has_steps = bool(curves) and all(curve.steps is not None and np.isfinite(curve.steps).all() for curve in curves)
    has_times = bool(curves) and all(np.isfinite(curve.seconds).all() for curve in curves)
    if by == "step" and has_steps:
        return CurveAxis("step", "step", time_unit(0.0))
    if has_times and (by == "time" or not all(curve.is_whole for curve in curves)):
        unit = time_unit(max(float(curve.seconds.max()) for curve in curves))
        note = "not every reading has a step, so time is shown instead" if by == "step" else ""
        return CurveAxis("time", f"{unit.name} since the start of the trial", unit, note)
    missing = "" if not curves else f"not every reading has a {by}, so the readings are counted"
    return CurveAxis("reading", "reading", time_unit(0.0), missing)


def _say_what_is_missing(figure: go.Figure, curves: Mapping[str, Curve], look: CurveLook, axis: CurveAxis) -> None:
    notes = [axis.note]
    if empty := [name for name, curve in curves.items() if not len(curve.values)]:
        notes.append("no readings yet" if len(curves) == 1 else f"without readings: {', '.join(html_safe(empty))}")
    if len(curves) > MOST_TRIALS:
        notes.append(f"{MOST_TRIALS} of {len(curves)} trials drawn")
    if odd := sum(int((~np.isfinite(curve.values)).sum()) for curve in curves.values()):
        notes.append(f"{odd:,} {'readings are' if odd != 1 else 'reading is'} not finite")
    if look.log and (below := sum(int((curve.values <= 0).sum()) for curve in curves.values())):
        verb = "readings are" if below != 1 else "reading is"
        notes.append(f"{below:,} {verb} not positive, and cannot be shown on a logarithmic axis")
    if any(len(curve.values) > look.most or not curve.is_whole for curve in curves.values()):
        notes.append("of a long curve the extremes are drawn")
    add_note(figure, *notes)


def _plain(values: Floats) -> list[Any]:
    """Return a JSON list that a script can append to; None for NaN."""
    return [None if math.isnan(value) else value for value in values.tolist()]
