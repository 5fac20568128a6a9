"""The value of every trial: in the order of creation with the best so far, and as a distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from katib.figures.axes import LOG, ValueAxis, compact, hover_format, hovered, shown, value_axis
from katib.figures.data import ExperimentData, FigureOptions, Measure, improvements, measure_of
from katib.figures.marks import add_best
from katib.figures.style import (
    BLUE,
    GREEN,
    GREY,
    MOST_POINTS,
    ORANGE,
    PURPLE,
    STATE_COLOURS,
    STATE_MARKS,
    add_level,
    add_note,
    fair_rows,
    html_safe,
    new_figure,
    places,
    shown_words,
    spaced,
)
from katib.figures.targets import most_telling
from katib.figures.trials import STATES, Floats, Rows, TrialTable
from katib.model.wording import number_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

_STRIP, _VALUES = (0.0, 0.07), (0.13, 1.0)
"""Share of the height: trials without a value are in a strip of their own, not on the axis of values."""
_MOST_NAMED = 1_000
"""Maximum number of marks with the parameters of their trials: more would double the size of a page."""
_NAMED_PARAMETERS = 6
_MOST_IN_STRIP = 100
"""Maximum number of marks of one state in it: more would be a line."""
_MEDIANS = 50
_MOST_STEPS = 1_000
_FEWEST_FOR_HALVES = 20
"""Minimum number of trials in a half: with fewer, halves differ by chance."""


def draw_history(data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw the history: a mark per trial, a line of the best so far, the goal, and trials without a value below.

    Of more than 2,000 measured trials a fair sample is drawn with those that were the best when they ended, and a line
    of the median beside them; the line of the best is exact.
    Metrics without a direction, such as those that are not objectives, have no best.
    """
    trials, measure = data.trials, measure_of(data.trials, choice.metric)
    axis = value_axis(measure.values[measure.drawn], maximize=measure.maximize)
    [title] = html_safe([measure.name])
    figure = new_figure(title=f"{data.name}: history", x="trial", y=title)
    figure.update_layout(yaxis=axis.layout, meta={"values": [axis.meta("yaxis")]})
    drawn = fair_rows(places(measure.drawn), MOST_POINTS, improvements(measure.costs)[::-1])
    for state in ("Succeeded", "EarlyStopped"):
        rows = drawn[trials.in_states(state)[drawn]]
        named = _NAMED_PARAMETERS if len(drawn) <= _MOST_NAMED else 0
        _add_marks(figure, trials, measure, rows[trials.feasible[rows]], state, named=named)
        _add_marks(figure, trials, measure, rows[~trials.feasible[rows]], state, infeasible=True, named=named)
    if len(drawn) < measure.drawn.sum():
        _add_median(figure, measure)
    _add_best(figure, measure, axis)
    if measure.goal is not None and len(trials):
        add_level(figure, [1, max(len(trials), 2)], [measure.goal, measure.goal], f"goal {measure.goal:g}")
    if (best := measure.best) is not None:
        value = float(measure.values[best])
        add_best(figure, best + 1, value, str(trials.names[best]), text=number_text(value, 4))
    _add_strip(figure, trials, measure)
    add_note(figure, shown_words(len(drawn), int(measure.drawn.sum())), axis.note)
    return figure


def _add_marks(
    figure: go.Figure,
    trials: TrialTable,
    measure: Measure,
    rows: Rows,
    state: str,
    *,
    infeasible: bool = False,
    named: int = 0,
) -> None:
    if not len(rows):
        return
    name = f"{state}, violates a constraint" if infeasible else state
    mark = f"{STATE_MARKS[state]}-open" if infeasible else STATE_MARKS[state]
    value, more = hovered("y", measure.values[rows]), "<br>%{text}" if named else ""
    figure.add_scatter(
        x=rows + 1,
        y=measure.values[rows],
        mode="markers",
        name=name,
        marker={"color": GREY if infeasible else STATE_COLOURS[state], "symbol": mark, "size": 7, "opacity": 0.8},
        customdata=html_safe(list(trials.names[rows])),
        text=_parameter_texts(trials, rows, named) if named else None,
        hovertemplate=f"%{{customdata}}<br>trial %{{x}}: {value}{more}<extra>{name}</extra>",
    )


def _parameter_texts(trials: TrialTable, rows: Rows, most: int) -> list[str]:
    """Return the values of at most `most` parameters of some trials, each on a line."""
    names = most_telling(trials, most)
    columns = []
    for name in names:
        [title] = html_safe([name])
        if trials.parameter(name).is_categorical:
            texts = html_safe([shown(trials.parameter_text(name, int(row))) for row in rows])
        else:
            texts = ["" if np.isnan(value) else number_text(value, 4) for value in trials.values[name][rows].tolist()]
        columns.append([f"{title} {text}" if text else "" for text in texts])
    return ["<br>".join(filter(None, texts)) for texts in zip(*columns, strict=True)] if columns else [""] * len(rows)


def _add_median(figure: go.Figure, measure: Measure) -> None:
    """Add the median of each of fifty equal parts: the trend of most trials, which single marks hide."""
    parts = np.array_split(places(measure.drawn), _MEDIANS)
    figure.add_scatter(
        x=[float(rows.mean()) + 1 for rows in parts],
        y=[float(np.median(measure.values[rows])) for rows in parts],
        mode="lines",
        line={"color": ORANGE, "width": 3},
        name="median around",
        hovertemplate="%{y:.6g}<extra>median around here</extra>",
    )


def _add_best(figure: go.Figure, measure: Measure, axis: ValueAxis) -> None:
    """Add the best so far as steps: a corner for each improvement, so that its size does not grow with the trials.

    It begins within the axis. The part before is a line of its own, which the page draws when it shows all values.
    """
    costs = measure.costs
    improved = improvements(costs)
    if not len(improved):
        return
    last = len(costs) - 1
    rows = improved if improved[-1] == last else np.append(improved, last)
    values = costs[np.append(improved, improved[-1])[: len(rows)]]
    values = -values if measure.maximize else values
    view = axis.views[axis.scale]
    places = np.log10(values) if axis.scale == LOG else values
    first = int(np.argmax((places >= view.low) & (places <= view.high))) if view.beyond else 0
    look = {"mode": "lines", "line": {"shape": "hv", "color": GREEN, "width": 2}, "hoverinfo": "skip"}
    figure.add_scatter(x=rows[first:] + 1, y=values[first:], name="best so far", **look)
    if first:
        hidden = {"showlegend": False, "visible": False, "meta": {"kind": "beyond"}}
        figure.add_scatter(x=rows[: first + 1] + 1, y=values[: first + 1], name="best before", **look, **hidden)


def _add_strip(figure: go.Figure, trials: TrialTable, measure: Measure) -> None:
    """Add a strip below with the trials without a value: running ones, and those that ended without."""
    if measure.drawn.all():
        return
    for state in STATES:
        rows = places(trials.in_states(state) & ~measure.drawn)
        if not len(rows):
            continue
        name = state if state not in {"Succeeded", "EarlyStopped"} else f"{state} without a value"
        rows = spaced(rows, _MOST_IN_STRIP)
        figure.add_scatter(
            x=rows + 1,
            y=np.full(len(rows), 0.5, dtype=np.float32),
            yaxis="y2",
            mode="markers",
            name=name,
            marker={"color": STATE_COLOURS[state], "symbol": STATE_MARKS[state], "size": 7},
            customdata=html_safe(list(trials.names[rows])),
            hovertemplate="%{customdata}<br>trial %{x}<extra>" + name + "</extra>",
        )
    strip = {"domain": _STRIP, "range": [0, 1], "fixedrange": True, "showgrid": False, "zeroline": False}
    strip |= {"tickvals": [0.5], "ticktext": ["no value"], "title": {"text": ""}}
    figure.update_layout(yaxis={"domain": _VALUES}, yaxis2=strip, xaxis={"anchor": "y2"})


def draw_edf(data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw the empirical distribution function of a metric, of all trials and of their first and second half."""
    trials, measure = data.trials, measure_of(data.trials, choice.metric)
    rows = places(measure.drawn)
    axis = value_axis(measure.values[rows], maximize=measure.maximize)
    [title] = html_safe([measure.name])
    figure = new_figure(title=f"{data.name}: distribution of {title}", x=title, y="share of the trials")
    horizontal = axis.layout | {"hoverformat": hover_format(measure.values[rows])}
    figure.update_layout(
        xaxis=horizontal,
        yaxis={"range": [-0.02, 1.02], "tickformat": ".0%"},
        hovermode="x unified",
        meta={"values": [axis.meta("xaxis")]},
    )
    if len(rows) >= _FEWEST_FOR_HALVES:
        middle = len(rows) // 2
        _add_steps(figure, measure.values[rows[:middle]], "first half", GREY, dash="dot", width=2)
        _add_steps(figure, measure.values[rows[middle:]], "second half", PURPLE, dash="dash", width=2)
    _add_steps(figure, measure.values[rows], "all trials", BLUE, dash="solid", width=2.5)
    if measure.goal is not None:
        add_level(figure, [measure.goal, measure.goal], [0, 1], f"goal {measure.goal:g}")
    without = int((~trials.in_states("Running", "Pending")).sum()) - len(rows)
    add_note(figure, f"trials that ended without a value, not counted: {without:,}" if without else "", axis.note)
    return figure


def _add_steps(figure: go.Figure, values: Floats, name: str, colour: str, *, dash: str, width: float) -> None:
    """Add a line that rises at values; of many values an even selection of quantiles, including the extremes."""
    ordered = np.sort(values)
    shown = spaced(np.arange(len(ordered)), _MOST_STEPS)
    figure.add_scatter(
        x=compact(ordered[shown]),
        y=compact((shown + 1) / len(ordered)),
        mode="lines",
        name=name,
        line={"shape": "hv", "color": colour, "dash": dash, "width": width},
        hovertemplate="%{y:.0%}<extra>" + name + "</extra>",
    )
