"""The objective value of every trial, in the order of creation, and the best so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from katib.figures.data import Choice, ExperimentData
from katib.figures.style import (
    GREEN,
    MOST_POINTS,
    STATE_COLOURS,
    STATE_MARKS,
    html_safe,
    new_figure,
    places,
    say_what_is_shown,
    thinned_rows,
)
from katib.figures.trials import Rows, TrialTable

if TYPE_CHECKING:
    import plotly.graph_objects as go

_RUG = 0.02
"""Height of the marks of trials without a value, as a share of the figure."""


def draw_history(data: ExperimentData, _choice: Choice) -> go.Figure:
    """Return the optimization history: a mark per trial, a line of the best so far, the goal, failures at the bottom.

    Of more than 2,000 measured trials so many are drawn, all extremes among them; the line of the best is exact.
    """
    trials, objective = data.trials, data.trials.objective
    figure = new_figure(title=f"{data.name}: history", x="trial", y=objective.name)
    drawn = thinned_rows(trials.objective_values, places(trials.measured))
    for state in ("Succeeded", "EarlyStopped"):
        rows = drawn[trials.in_states(state)[drawn]]
        if len(rows):
            _add_marks(figure, trials, rows, state)
    _add_best(figure, trials)
    if objective.goal is not None:
        figure.add_hline(y=objective.goal, line={"dash": "dot", "color": GREEN}, annotation_text="goal")
    _add_rug(figure, trials)
    say_what_is_shown(figure, len(drawn), int(trials.measured.sum()))
    return figure


def _add_marks(figure: go.Figure, trials: TrialTable, rows: Rows, state: str) -> None:
    feasible = trials.feasible[rows]
    figure.add_scatter(
        x=rows + 1,
        y=trials.objective_values[rows],
        mode="markers",
        name=state,
        marker={
            "color": STATE_COLOURS[state],
            "symbol": STATE_MARKS[state],
            "size": 7,
            "opacity": np.where(feasible, 0.8, 0.3),
        },
        customdata=html_safe(list(trials.names[rows])),
        hovertemplate="%{customdata}<br>%{y}<extra>" + state + "</extra>",
    )


def _add_best(figure: go.Figure, trials: TrialTable) -> None:
    """Add the best so far as steps: a corner where it improves, so that its size does not grow with the trials."""
    costs = trials.costs
    best = np.minimum.accumulate(costs) if len(costs) else costs
    improved = places(np.isfinite(costs) & (costs < np.concatenate(([np.inf], best[:-1]))))
    if not len(improved):
        return
    rows = np.append(improved, len(trials) - 1)
    values = best[rows]
    figure.add_scatter(
        x=rows + 1,
        y=-values if trials.objective.maximize else values,
        mode="lines",
        line={"shape": "hv", "color": GREEN, "width": 2},
        name="best so far",
        hoverinfo="skip",
    )


def _add_rug(figure: go.Figure, trials: TrialTable) -> None:
    """Add the trials that ended without a value, at the bottom: they would be missing otherwise."""
    for state in ("Failed", "MetricsUnavailable"):
        rows = places(trials.in_states(state))[:MOST_POINTS]
        if len(rows):
            figure.add_scatter(
                x=rows + 1,
                y=np.full(len(rows), _RUG),
                yaxis="y2",
                mode="markers",
                name=state,
                marker={"color": STATE_COLOURS[state], "symbol": STATE_MARKS[state], "size": 7},
                customdata=html_safe(list(trials.names[rows])),
                hovertemplate="%{customdata}<extra>" + state + "</extra>",
            )
            figure.update_layout(yaxis2={"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True})
