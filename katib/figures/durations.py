"""Durations of trials, by their end, and the relation of value and duration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from katib.figures.axes import LINEAR, TimeUnit, compact, hovered, time_unit, value_axis
from katib.figures.data import ExperimentData, FigureOptions, Measure, measure_of
from katib.figures.style import (
    GOLDEN,
    STATE_COLOURS,
    STATE_MARKS,
    add_note,
    fair_rows,
    html_safe,
    new_figure,
    places,
    shown_words,
)
from katib.figures.trials import STATES, Floats, TrialTable

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_OF_A_STATE = 150
"""Marks beside a box."""
_MOST_MEASURED = 800
_FEWEST_FOR_A_BOX = 5
_JITTER = 0.3
"""Spread to each side: marks of equal durations do not hide each other."""
_LEFT, _RIGHT = (0.0, 0.46), (0.54, 1.0)


def draw_durations(data: ExperimentData, choice: FigureOptions) -> go.Figure:
    """Draw two pictures: durations of ended trials by state, and the value of each trial against its duration.

    A box spans the middle half of a state's trials with the median in it, its whiskers the 5th to the 95th percentile.
    """
    trials, measure = data.trials, measure_of(data.trials, choice.metric)
    durations = np.maximum(trials.durations, 0.0)
    unit = time_unit(float(np.nanpercentile(durations, 90)))
    durations = durations / unit.seconds
    figure = new_figure(title=f"{data.name}: durations", y=unit.name)
    states = [state for state in STATES if (np.isfinite(durations) & trials.in_states(state)).any()]
    for place, state in enumerate(states):
        _add_state(figure, trials, durations, state, place)
    vertical = value_axis(measure.values[measure.drawn], maximize=measure.maximize)
    long = value_axis(durations, maximize=False, scales=(LINEAR,))
    from_zero = {"range": [0, long.range_of(LINEAR)[1]]} if long.beyond else {"rangemode": "tozero"}
    meta = [long.meta("yaxis", "xaxis2")]
    axes: dict[str, Any] = {
        "xaxis": {
            "domain": _LEFT,
            "tickvals": list(range(len(states))),
            "ticktext": states,
            "range": [-0.6, len(states) - 0.4],
            "showgrid": False,
        },
        "yaxis": from_zero,
    }
    note = ""
    if (measure.drawn & np.isfinite(durations)).any():
        [title] = html_safe([measure.name])
        axes["xaxis2"] = {"domain": _RIGHT, "anchor": "y2", "title": {"text": unit.name}, **from_zero}
        axes["yaxis2"] = {"anchor": "x2", "side": "right", "title": {"text": title}, **vertical.layout}
        axes["margin"] = {"r": 70}
        meta.append(vertical.meta("yaxis2"))
        note = _add_values(figure, trials, measure, durations, unit)
    figure.update_layout(**axes, meta={"values": meta})
    add_note(figure, note, vertical.note if len(meta) > 1 else "", long.note)
    return figure


def no_trial_has_ended(data: ExperimentData) -> str:
    """Return an obstacle if no started trial has ended."""
    return "" if np.isfinite(data.trials.durations).any() else "No trial has run to an end yet."


def _add_state(figure: go.Figure, trials: TrialTable, durations: Floats, state: str, place: int) -> None:
    rows = places(np.isfinite(durations) & trials.in_states(state))
    found = durations[rows]
    if len(rows) >= _FEWEST_FOR_A_BOX:
        low, lower, middle, upper, high = np.percentile(found, (5, 25, 50, 75, 95))
        figure.add_box(
            x=[place],
            q1=[lower],
            median=[middle],
            q3=[upper],
            lowerfence=[low],
            upperfence=[high],
            name=state,
            showlegend=False,
            line={"color": STATE_COLOURS[state]},
            fillcolor="rgba(127,127,127,0.12)",
            width=0.7,
        )
    drawn = fair_rows(rows, _MOST_OF_A_STATE, rows[[np.argmin(found), np.argmax(found)]] if len(rows) else rows)
    figure.add_scatter(
        x=compact(place + _JITTER * (np.arange(len(drawn)) * GOLDEN % 1.0 * 2 - 1)),
        y=compact(durations[drawn]),
        mode="markers",
        name=state,
        showlegend=False,
        marker={"color": STATE_COLOURS[state], "symbol": STATE_MARKS[state], "size": 5, "opacity": 0.6},
        customdata=html_safe(list(trials.names[drawn])),
        hovertemplate="%{customdata}<br>%{y:.4g}<extra>" + state + "</extra>",
    )


def _add_values(figure: go.Figure, trials: TrialTable, measure: Measure, durations: Floats, unit: TimeUnit) -> str:
    """Add the picture on the right; return its note."""
    rows = places(measure.drawn & np.isfinite(durations))
    drawn = fair_rows(rows, _MOST_MEASURED, rows[rows == measure.best])
    for state in ("Succeeded", "EarlyStopped"):
        shown = drawn[trials.in_states(state)[drawn]]
        if len(shown):
            value = hovered("y", measure.values[shown])
            figure.add_scatter(
                x=compact(durations[shown]),
                y=compact(measure.values[shown]),
                xaxis="x2",
                yaxis="y2",
                mode="markers",
                name=state,
                marker={"color": STATE_COLOURS[state], "symbol": STATE_MARKS[state], "size": 6, "opacity": 0.7},
                customdata=html_safe(list(trials.names[shown])),
                hovertemplate=f"%{{customdata}}<br>%{{x:.4g}} {unit.name}: {value}<extra>{state}</extra>",
            )
    return shown_words(len(drawn), len(rows))
