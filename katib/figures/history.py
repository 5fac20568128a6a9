"""The value of every trial, in the order of creation, and the best so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from katib.figures.data import Choice, ExperimentData
from katib.figures.measure import Measure, improvements, measure_of
from katib.figures.scales import value_axis
from katib.figures.style import (
    GREEN,
    GREY,
    ORANGE,
    STATE_COLOURS,
    STATE_MARKS,
    add_note,
    html_safe,
    new_figure,
    places,
    shown_words,
    thinned_rows,
)
from katib.figures.trials import STATES, Rows, TrialTable

if TYPE_CHECKING:
    import plotly.graph_objects as go

_RUG = 0.02
"""Height of the marks of trials without a value, as a share of the figure."""
_MOST_IN_RUG = 100
"""Marks of one state at the bottom: more would be a line."""
_MOST_MEASURED = 1_500
_MEDIANS = 50


def draw_history(data: ExperimentData, choice: Choice) -> go.Figure:
    """Return the history: a mark per trial, a line of the best so far, the goal, trials without a value at the bottom.

    Of more than 1,500 measured trials so many are drawn, all extremes among them, and a line of the median beside them;
    the line of the best is exact.
    Without a direction, as other metrics than objectives have none, there is no best.
    """
    trials, measure = data.trials, measure_of(data.trials, choice.metric)
    axis = value_axis(measure.values[measure.drawn], maximize=measure.maximize)
    [title] = html_safe([measure.name])
    figure = new_figure(title=f"{data.name}: history", x="trial", y=title)
    figure.update_layout(yaxis=axis.layout)
    drawn = thinned_rows(measure.values, places(measure.drawn), _MOST_MEASURED)
    for state in ("Succeeded", "EarlyStopped"):
        rows = drawn[trials.in_states(state)[drawn]]
        _add_marks(figure, trials, measure, rows[trials.feasible[rows]], state)
        _add_marks(figure, trials, measure, rows[~trials.feasible[rows]], state, infeasible=True)
    if len(drawn) < measure.drawn.sum():
        _add_median(figure, measure)
    _add_best(figure, measure)
    if measure.goal is not None and len(trials):
        _add_goal(figure, measure.goal, len(trials))
    _add_rug(figure, trials, measure)
    add_note(figure, shown_words(len(drawn), int(measure.drawn.sum())), axis.note)
    return figure


def _add_marks(
    figure: go.Figure, trials: TrialTable, measure: Measure, rows: Rows, state: str, *, infeasible: bool = False
) -> None:
    if not len(rows):
        return
    name = f"{state}, violates a constraint" if infeasible else state
    mark = f"{STATE_MARKS[state]}-open" if infeasible else STATE_MARKS[state]
    figure.add_scatter(
        x=rows + 1,
        y=measure.values[rows],
        mode="markers",
        name=name,
        marker={"color": GREY if infeasible else STATE_COLOURS[state], "symbol": mark, "size": 7, "opacity": 0.8},
        customdata=html_safe(list(trials.names[rows])),
        hovertemplate="%{customdata}<br>trial %{x}: %{y:.6g}<extra>" + name + "</extra>",
    )


def _add_median(figure: go.Figure, measure: Measure) -> None:
    """Add the median of each of fifty equally long parts: whether most trials get better, which single marks hide."""
    parts = np.array_split(places(measure.drawn), _MEDIANS)
    figure.add_scatter(
        x=[float(rows.mean()) + 1 for rows in parts],
        y=[float(np.median(measure.values[rows])) for rows in parts],
        mode="lines",
        line={"color": ORANGE, "width": 3},
        name="median around",
        hovertemplate="%{y:.6g}<extra>median around here</extra>",
    )


def _add_best(figure: go.Figure, measure: Measure) -> None:
    """Add the best so far as steps: a corner where it improves, so that its size does not grow with the trials."""
    costs = measure.costs
    improved = improvements(costs)
    if not len(improved):
        return
    last = len(costs) - 1
    rows = improved if improved[-1] == last else np.append(improved, last)
    values = costs[np.append(improved, improved[-1])[: len(rows)]]
    figure.add_scatter(
        x=rows + 1,
        y=-values if measure.maximize else values,
        mode="lines",
        line={"shape": "hv", "color": GREEN, "width": 2},
        name="best so far",
        hoverinfo="skip",
    )


def _add_goal(figure: go.Figure, goal: float, trials: int) -> None:
    figure.add_scatter(
        x=[1, max(trials, 2)],
        y=[goal, goal],
        mode="lines",
        line={"dash": "dot", "color": GREEN, "width": 1.5},
        name=f"goal {goal:g}",
        hoverinfo="skip",
    )


def _add_rug(figure: go.Figure, trials: TrialTable, measure: Measure) -> None:
    """Add the trials that have no value, at the bottom: those that run, and those that would be missing otherwise."""
    for state in STATES:
        rows = places(trials.in_states(state) & ~measure.drawn)
        if not len(rows):
            continue
        name = state if state not in {"Succeeded", "EarlyStopped"} else f"{state} without a value"
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, _MOST_IN_RUG).astype(np.int64))]
        figure.add_scatter(
            x=rows + 1,
            y=np.full(len(rows), _RUG, dtype=np.float32),
            yaxis="y2",
            mode="markers",
            name=name,
            marker={"color": STATE_COLOURS[state], "symbol": STATE_MARKS[state], "size": 7},
            customdata=html_safe(list(trials.names[rows])),
            hovertemplate="%{customdata}<br>trial %{x}<extra>" + name + "</extra>",
        )
        figure.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True})
