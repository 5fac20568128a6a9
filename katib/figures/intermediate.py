"""Values that trials reported while they ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from katib.figures.axes import compact, hovered, value_axis
from katib.figures.curves import CurveAxis, curve_axis, rows_of
from katib.figures.data import ExperimentData, FigureOptions, measure_of
from katib.figures.groups import add_groups_of_lines, trial_groups
from katib.figures.style import GREEN, RED, STATE_COLOURS, STATE_MARKS, add_note, html_safe, new_figure
from katib.figures.trials import STATES, Floats

if TYPE_CHECKING:
    import plotly.graph_objects as go


_FEW = 20
"""Lines from which they are paler, so that the best one and the marks are visible."""


class _CurveLine(NamedTuple):
    """A curve on its axis.

    Attributes:
        x: Place of each reading.
        y: The readings; NaN if one is not a number, which leaves a gap.
    """

    name: str
    state: str
    x: Floats
    y: Floats


def draw_intermediate(data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw the curves of the selected trials, one line each, with a mark of the state at its end; or means of groups.

    The best trial is on top. A reading that is not a number leaves a gap, and a mark at its place.
    """
    measure = measure_of(data.trials, choice.metric)
    axis = curve_axis(tuple(data.curves.values()), choice.by)
    lines = _lines(data, axis)
    worst = np.nanmin if measure.maximize else np.nanmax
    ends = [worst(line.y) for line in lines if np.isfinite(line.y).any()]
    vertical = value_axis(np.array(ends), maximize=measure.maximize, total=len(data.trials))
    [title] = html_safe([measure.name])
    figure = new_figure(title=f"{data.name}: intermediate values", x=axis.title, y=title)
    figure.update_layout(yaxis=vertical.layout, meta={"by": axis.by, "values": [vertical.meta("yaxis")]})
    note = f"{len(lines):,} of {len(data.trials):,} trials drawn" if len(lines) < len(data.trials) else ""
    if choice.group:
        rows = rows_of(data.trials, data.curves)
        groups = trial_groups(data.trials, [rows[line.name] for line in lines], choice.group)
        means = add_groups_of_lines(figure, groups, [(line.x, line.y) for line in lines], held=False)
        add_note(figure, f"{means}, of the trials that come so far", note, axis.note, vertical.note)
        return figure
    best = data.trials.names[measure.best] if measure.best is not None else ""
    for line in sorted(lines, key=lambda line: line.name == best):
        _add_line(figure, line, 0.45 if len(lines) > _FEW else 0.8, is_best=line.name == best)
    for state in STATES:
        _add_ends(figure, [line for line in lines if line.state == state], state)
    _add_gaps(figure, lines)
    add_note(figure, note and f"{note}; the best and the worst are among them", axis.note, vertical.note)
    return figure


def curves_are_missing(data: ExperimentData) -> str:
    if any(len(curve.values) for curve in data.curves.values()):
        return ""
    return "No trial has reported a value while it ran."


def _lines(data: ExperimentData, axis: CurveAxis) -> list[_CurveLine]:
    rows = rows_of(data.trials, data.curves)
    lines = []
    for name, curve in data.curves.items():
        x = axis.places(curve)
        has_place = np.isfinite(x)
        if name in rows and has_place.any():
            y = np.where(np.isfinite(curve.values), curve.values, np.nan)
            lines.append(_CurveLine(name, data.trials.state_of(rows[name]), x[has_place], y[has_place]))
    return lines


def _add_line(figure: go.Figure, line: _CurveLine, opacity: float, *, is_best: bool) -> None:
    [name] = html_safe([line.name])
    style = {"color": GREEN, "width": 3} if is_best else {"color": STATE_COLOURS[line.state], "width": 1}
    figure.add_scatter(
        x=compact(line.x),
        y=compact(line.y),
        mode="lines" if len(line.x) > 1 else "markers",
        line=style,
        marker={"size": 4, "color": style["color"]},
        opacity=1.0 if is_best else opacity,
        name="best trial" if is_best else name,
        showlegend=is_best,
        legendgroup="best" if is_best else line.state,
        hovertemplate=f"{name}<br>{hovered('x', line.x)}: {hovered('y', line.y)}<extra>{line.state}</extra>",
    )


def _add_ends(figure: go.Figure, lines: list[_CurveLine], state: str) -> None:
    """Add a mark at the last number of each curve, which shows its state and is its legend entry."""
    ended = [line for line in lines if np.isfinite(line.y).any()]
    if not ended:
        return
    columns = [line.x for line in ended], [line.y for line in ended]
    last = [int(np.flatnonzero(np.isfinite(line.y))[-1]) for line in ended]
    x, y = (np.array([at[place] for at, place in zip(column, last, strict=True)]) for column in columns)
    figure.add_scatter(
        x=x.tolist(),
        y=y.tolist(),
        mode="markers",
        name=state,
        legendgroup=state,
        marker={
            "color": STATE_COLOURS[state],
            "symbol": STATE_MARKS[state],
            "size": 5 if state == "Succeeded" else 9,
        },
        customdata=html_safe([line.name for line in ended]),
        hovertemplate=f"%{{customdata}}<br>ends at {hovered('x', x)}: {hovered('y', y)}<extra>" + state + "</extra>",
    )


def _add_gaps(figure: go.Figure, lines: list[_CurveLine]) -> None:
    """Add a mark at the end of the finite part of a curve, at the height of its last number."""
    x, y, names = [], [], []
    for line in lines:
        finite = np.isfinite(line.y)
        for place in np.flatnonzero(finite[:-1] & ~finite[1:])[:1]:
            x.append(float(line.x[place + 1]))
            y.append(float(line.y[place]))
            names.append(line.name)
    if names:
        figure.add_scatter(
            x=x,
            y=y,
            mode="markers",
            name="not a number",
            marker={"color": RED, "symbol": "x-thin", "size": 9, "line": {"width": 2, "color": RED}},
            customdata=html_safe(names),
            hovertemplate=f"%{{customdata}}<br>no number from {hovered('x', np.array(x))} on<extra></extra>",
        )
