"""Timeline: trials over time, side by side in slots, which shows the use of parallelism."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from katib.figures.axes import TimeUnit, compact, time_unit
from katib.figures.data import ExperimentData, FigureOptions
from katib.figures.style import STATE_COLOURS, add_note, html_safe, new_figure, places
from katib.figures.trials import STATES, Floats, Rows, TrialTable
from katib.model.wording import number_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_BARS = 1_000
_MOST_SLOTS = 60
_PIECES = 200
"""Parts of the time, if there are more trials or slots than bars can show."""
_THINNEST = 1 / 600
"""Minimum width of a bar as a share of the whole time, so that it is visible."""
_LOWEST_HEIGHT, _SLOT_HEIGHT = 320, 18
_NUMBERED = 20
"""Maximum number of slots with visible numbers."""

_PATTERNS = {"EarlyStopped": "\\", "Running": ".", "Failed": "x", "MetricsUnavailable": "/", "Killed": "+"}
"""Patterns of the bars, so that a reader need not distinguish colours."""


def draw_timeline(data: ExperimentData, _choice: FigureOptions) -> go.Figure:
    """Draw bars of trials over time, each in the slot that was free the longest when it started.

    Of more than 1,000 trials or 60 slots: the number of parallel trials, by state, in 200 parts of the time.
    """
    trials = data.trials
    rows = places(np.isfinite(trials.started))
    rows = rows[np.argsort(trials.started[rows], kind="stable")]
    starts, ends = _spans(trials, rows, data.now)
    whole = max(float(ends.max()), 1e-3)
    unit = time_unit(whole)
    figure = new_figure(title=f"{data.name}: timeline", x=f"{unit.name} since the first trial started")
    slots = slots_of(starts, ends) if len(rows) <= _MOST_BARS else None
    if slots is not None and slots.max() < _MOST_SLOTS:
        _draw_bars(figure, trials, rows, slots, starts / unit.seconds, ends / unit.seconds, unit)
    else:
        counts = running_at_once(trials.states[rows].astype(np.int64), starts, ends, whole / _PIECES)
        _draw_counts(figure, counts, whole / unit.seconds)
        add_note(figure, f"{len(rows):,} trials: how many ran at once, in place of a bar for each")
    figure.update_layout(xaxis={"range": [0, whole / unit.seconds]})
    return figure


def nothing_has_started(data: ExperimentData) -> str:
    return "" if np.isfinite(data.trials.started).any() else "No trial has started yet."


def slots_of(starts: Floats, ends: Floats) -> Rows:
    """Assign slots to trials, with no overlap within a slot and as few slots as possible."""
    free: list[tuple[float, int]] = []
    slots = np.empty(len(starts), dtype=np.int64)
    for place, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if free and free[0][0] <= start:
            slot = free[0][1]
            heapq.heapreplace(free, (end, slot))
        else:
            slot = len(free)
            heapq.heappush(free, (end, slot))
        slots[place] = slot
    return slots


def running_at_once(states: npt.NDArray[np.int64], starts: Floats, ends: Floats, width: float) -> Floats:
    """Return the average number of parallel trials of each state in each of 200 parts of the time, shape (200, states).

    A trial covers fractions of the parts in which it starts and ends, and all between them.

    Args:
        states: Indices in `STATES`.
        starts: Start times, in seconds.
        width: Length of a part, in seconds.
    """
    begin, end = starts / width, ends / width
    first = np.minimum(begin.astype(np.int64), _PIECES - 1)
    last = np.minimum(end.astype(np.int64), _PIECES - 1)
    filled = np.zeros((_PIECES + 1, len(STATES)))
    np.add.at(filled, (first + 1, states), 1.0)
    np.add.at(filled, (last + 1, states), -1.0)
    filled = filled.cumsum(axis=0)[:_PIECES]
    np.add.at(filled, (first, states), first + 1 - begin)
    np.add.at(filled, (last, states), end - last - 1)
    return np.maximum(filled, 0.0)


def _spans(trials: TrialTable, rows: Rows, now: float) -> tuple[Floats, Floats]:
    """Return start and end of trials since the first start; a running one lasts until now."""
    begin = float(trials.started[rows[0]])
    latest = now if math.isfinite(now) else float(np.nanmax([trials.started[rows], trials.ended[rows]]))
    starts = trials.started[rows] - begin
    ends = np.where(np.isfinite(trials.ended[rows]), trials.ended[rows], latest) - begin
    return starts, np.maximum(ends, starts)


def _draw_bars(
    figure: go.Figure, trials: TrialTable, rows: Rows, slots: Rows, starts: Floats, ends: Floats, unit: TimeUnit
) -> None:
    count = int(slots.max()) + 1
    thinnest = float(ends.max()) * _THINNEST
    for state in STATES:
        shown = places(trials.in_states(state)[rows])
        if not len(shown):
            continue
        names, values = html_safe(list(trials.names[rows[shown]])), trials.objective_values[rows[shown]]
        lengths = (ends - starts)[shown]
        figure.add_bar(
            orientation="h",
            base=compact(starts[shown]),
            x=compact(np.maximum(lengths, thinnest)),
            y=slots[shown] + 1,
            name=state,
            marker={
                "color": STATE_COLOURS[state],
                "pattern": {"shape": _PATTERNS.get(state, ""), "size": 5, "solidity": 0.25},
                "line": {"width": 0},
            },
            customdata=[
                f"{name}<br>{length:.3g} {unit.name}" + (f"<br>{number_text(value)}" if math.isfinite(value) else "")
                for name, length, value in zip(names, lengths, values, strict=True)
            ],
            hovertemplate="%{customdata}<br>from %{base:.4g} " + unit.name + " on<extra>" + state + "</extra>",
        )
    figure.update_layout(
        barmode="overlay",
        bargap=0.15,
        height=max(_LOWEST_HEIGHT, 140 + _SLOT_HEIGHT * count),
        yaxis={
            "title": {"text": "slot"},
            "range": [count + 0.5, 0.5],
            "dtick": 1 if count <= _NUMBERED else None,
            "zeroline": False,
        },
        showlegend=True,
    )


def _draw_counts(figure: go.Figure, counts: Floats, whole: float) -> None:
    middles = (np.arange(_PIECES) + 0.5) * (whole / _PIECES)
    for number, state in enumerate(STATES):
        if counts[:, number].any():
            figure.add_scatter(
                x=compact(middles),
                y=compact(counts[:, number]),
                mode="lines",
                line={"width": 0.5, "color": STATE_COLOURS[state]},
                stackgroup="states",
                fillpattern={"shape": _PATTERNS.get(state, ""), "size": 6, "solidity": 0.25},
                name=state,
                hovertemplate="%{y:.3g}<extra>" + state + "</extra>",
            )
    figure.update_layout(yaxis={"title": {"text": "trials at once"}, "rangemode": "tozero"}, hovermode="x unified")
