"""Which share of the trials reached which value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from katib.figures.data import Choice, ExperimentData
from katib.figures.measure import Measure, measure_of
from katib.figures.scales import compact, value_axis
from katib.figures.style import BLUE, GREEN, GREY, PURPLE, add_note, html_safe, new_figure, places
from katib.figures.trials import Floats

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_STEPS = 1_000
_FEWEST_FOR_HALVES = 20
"""Halves of fewer trials differ by chance."""


def draw_edf(data: ExperimentData, choice: Choice) -> go.Figure:
    """Return the empirical distribution function of a metric, of all trials and of their first and second half."""
    trials, measure = data.trials, measure_of(data.trials, choice.metric)
    rows = places(measure.drawn)
    axis = value_axis(measure.values[rows], maximize=measure.maximize)
    [title] = html_safe([measure.name])
    figure = new_figure(title=f"{data.name}: distribution of {title}", x=title, y="share of the trials")
    figure.update_layout(xaxis=axis.layout, yaxis={"range": [-0.02, 1.02], "tickformat": ".0%"}, hovermode="x unified")
    if len(rows) >= _FEWEST_FOR_HALVES:
        middle = len(rows) // 2
        _add_steps(figure, measure.values[rows[:middle]], "first half", GREY, dash="dot", width=2)
        _add_steps(figure, measure.values[rows[middle:]], "second half", PURPLE, dash="dash", width=2)
    _add_steps(figure, measure.values[rows], "all trials", BLUE, dash="solid", width=2.5)
    _add_goal(figure, measure)
    without = int((~trials.in_states("Running", "Pending")).sum()) - len(rows)
    add_note(figure, f"trials that ended without a value, not counted: {without:,}" if without else "", axis.note)
    return figure


def _add_steps(figure: go.Figure, values: Floats, name: str, colour: str, *, dash: str, width: float) -> None:
    """Add a line that rises where values are; of many values an even choice of quantiles, the extremes among them."""
    ordered = np.sort(values)
    shown = np.unique(np.linspace(0, len(ordered) - 1, _MOST_STEPS).astype(np.int64))
    figure.add_scatter(
        x=compact(ordered[shown]),
        y=compact((shown + 1) / len(ordered)),
        mode="lines",
        name=name,
        line={"shape": "hv", "color": colour, "dash": dash, "width": width},
        hovertemplate="%{y:.0%}<extra>" + name + "</extra>",
    )


def _add_goal(figure: go.Figure, measure: Measure) -> None:
    if measure.goal is not None:
        figure.add_scatter(
            x=[measure.goal, measure.goal],
            y=[0, 1],
            mode="lines",
            name=f"goal {measure.goal:g}",
            line={"dash": "dot", "color": GREEN, "width": 1.5},
            hoverinfo="skip",
        )
