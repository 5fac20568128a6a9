"""When which trial ran, side by side in slots: whether the parallelism was used, and by what."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from katib.figures.data import Choice, ExperimentData
from katib.figures.scales import TimeUnit, compact, time_unit
from katib.figures.style import STATE_COLOURS, add_note, html_safe, new_figure, places
from katib.figures.trials import STATES, Floats, Rows, TrialTable

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_BARS = 1_000
"""With more trials the time is cut into pieces, so many of all slots together."""
_MOST_SLOTS = 100
_FEWEST_PIECES = 10
"""Of a slot."""
_THINNEST = 1 / 600
"""Of the whole time: a bar that would be thinner is drawn so wide, or nobody would see it."""
_LOWEST_HEIGHT, _SLOT_HEIGHT = 320, 18

_PATTERNS = {"EarlyStopped": "\\", "Running": ".", "Failed": "x", "MetricsUnavailable": "/", "Killed": "+"}
"""On the bars, so that nobody has to tell colours apart."""


class _Bars(NamedTuple):
    """What is drawn; places in `slots`, times in seconds since the first start.

    Attributes:
        slots: Row of each bar.
        starts: Where it begins.
        ends: Where it ends.
        states: Place in `STATES`.
        texts: What it says of itself.
    """

    slots: Rows
    starts: Floats
    ends: Floats
    states: npt.NDArray[np.int64]
    texts: list[str]


def draw_timeline(data: ExperimentData, _choice: Choice) -> go.Figure:
    """Return bars of trials over time, each in the slot that was free the longest when it started.

    Of more than 1,000 trials the time is cut into pieces, and each takes the state that filled most of it.
    """
    trials = data.trials
    rows = places(np.isfinite(trials.started))
    rows = rows[np.argsort(trials.started[rows], kind="stable")]
    starts, ends = _spans(trials, rows, data.now)
    slots = slots_of(starts, ends)
    count, shown = int(slots.max()) + 1, min(int(slots.max()) + 1, _MOST_SLOTS)
    kept = slots < shown
    whole = max(float(ends.max()), 1e-3)
    unit = time_unit(whole)
    if kept.sum() <= _MOST_BARS:
        bars = _single_bars(trials, rows[kept], slots[kept], starts[kept], ends[kept], whole)
        note = ""
    else:
        bars = _merged_bars(trials.states[rows[kept]], slots[kept], starts[kept], ends[kept], shown, whole)
        note = f"{int(kept.sum()):,} trials: each piece of time shows the state that filled most of it"
    figure = new_figure(title=f"{data.name}: timeline", x=f"{unit.name} since the first trial started", y="slot")
    figure.update_layout(
        barmode="overlay",
        bargap=0.15,
        height=max(_LOWEST_HEIGHT, 140 + _SLOT_HEIGHT * shown),
        yaxis={"range": [shown + 0.5, 0.5], "dtick": 1 if shown <= 20 else None, "zeroline": False},  # noqa: PLR2004
        xaxis={"range": [0, whole / unit.seconds]},
    )
    for number, state in enumerate(STATES):
        _add_bars(figure, bars, np.flatnonzero(bars.states == number), state, unit)
    add_note(figure, note, f"the first {shown} of {count} slots are shown" if shown < count else "")
    return figure


def nothing_has_started(data: ExperimentData) -> str:
    """Return that no trial has started, if so."""
    return "" if np.isfinite(data.trials.started).any() else "No trial has started yet."


def slots_of(starts: Floats, ends: Floats) -> Rows:
    """Return a slot for each trial, so that no two of a slot run at once, with as few slots as there can be.

    Args:
        starts: When each started, in rising order.
        ends: When each ended.
    """
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


def _spans(trials: TrialTable, rows: Rows, now: float) -> tuple[Floats, Floats]:
    """Return start and end of trials since the first start; one that runs has lasted until now."""
    begin = float(trials.started[rows[0]])
    times = np.concatenate([trials.started[rows], trials.ended[rows], [now]])
    latest = float(np.nanmax(times)) if math.isnan(now) else now
    starts = trials.started[rows] - begin
    ends = np.where(np.isfinite(trials.ended[rows]), trials.ended[rows], latest) - begin
    return starts, np.maximum(ends, starts)


def _single_bars(trials: TrialTable, rows: Rows, slots: Rows, starts: Floats, ends: Floats, whole: float) -> _Bars:
    thinnest = whole * _THINNEST
    names = html_safe(list(trials.names[rows]))
    values = trials.objective_values[rows]
    texts = [
        f"{name}<br>{_seconds_words(end - start)}" + (f"<br>{value:.6g}" if math.isfinite(value) else "")
        for name, start, end, value in zip(names, starts, ends, values, strict=True)
    ]
    return _Bars(slots, starts, np.maximum(ends, starts + thinnest), trials.states[rows].astype(np.int64), texts)


def _merged_bars(
    states: npt.NDArray[np.int8], slots: Rows, starts: Floats, ends: Floats, slot_count: int, whole: float
) -> _Bars:
    pieces = max(_FEWEST_PIECES, _MOST_BARS // slot_count)
    width = whole / pieces
    filled = _filled(states.astype(np.int64), slots, starts, ends, (slot_count, pieces, len(STATES)), width)
    most = np.where(filled.sum(axis=2) > 0, filled.argmax(axis=2), -1)
    changes = np.ones_like(most, dtype=np.bool_)
    changes[:, 1:] = most[:, 1:] != most[:, :-1]
    bar_slots, firsts = np.nonzero(changes)
    following = np.append(bar_slots[1:] == bar_slots[:-1], False)
    lasts = np.where(following, np.append(firsts[1:], pieces), pieces)
    kept = most[bar_slots, firsts] >= 0
    bar_slots, firsts, lasts = bar_slots[kept], firsts[kept], lasts[kept]
    counts = np.zeros((slot_count, pieces + 1), dtype=np.int64)
    np.add.at(counts, (slots, np.minimum((starts / width).astype(np.int64), pieces - 1) + 1), 1)
    counts = counts.cumsum(axis=1)
    begun = counts[bar_slots, lasts] - counts[bar_slots, firsts]
    texts = [f"{count:,} trials started here" for count in begun]
    return _Bars(bar_slots, _times(firsts, width), _times(lasts, width), most[bar_slots, firsts], texts)


def _filled(
    states: npt.NDArray[np.int64],
    slots: Rows,
    starts: Floats,
    ends: Floats,
    shape: tuple[int, int, int],
    width: float,
) -> Floats:
    """Return how much of each piece of time of each slot each state fills, in pieces.

    A trial fills parts of the pieces in which it begins and ends, and all between them.
    """
    pieces = shape[1]
    first = np.minimum((starts / width).astype(np.int64), pieces - 1)
    last = np.minimum((ends / width).astype(np.int64), pieces - 1)
    filled = np.zeros(shape)
    within = first == last
    tiny = 1e-9  # a trial without duration still beats an empty piece
    np.add.at(filled, (slots[within], first[within], states[within]), (ends - starts)[within] / width + tiny)
    long = ~within
    np.add.at(filled, (slots[long], first[long], states[long]), first[long] + 1 - starts[long] / width)
    np.add.at(filled, (slots[long], last[long], states[long]), ends[long] / width - last[long])
    between = np.zeros((shape[0], pieces + 1, shape[2]))
    np.add.at(between, (slots[long], first[long] + 1, states[long]), 1.0)
    np.add.at(between, (slots[long], last[long], states[long]), -1.0)
    filled += between.cumsum(axis=1)[:, :pieces]
    return filled


def _times(pieces: Rows, width: float) -> Floats:
    return pieces.astype(np.float64) * width


def _add_bars(figure: go.Figure, bars: _Bars, chosen: Rows, state: str, unit: TimeUnit) -> None:
    if len(chosen):
        figure.add_bar(
            orientation="h",
            base=compact(bars.starts[chosen] / unit.seconds),
            x=compact((bars.ends - bars.starts)[chosen] / unit.seconds),
            y=bars.slots[chosen] + 1,
            name=state,
            marker={
                "color": STATE_COLOURS[state],
                "pattern": {"shape": _PATTERNS.get(state, ""), "size": 5, "solidity": 0.25},
                "line": {"width": 0},
            },
            customdata=[bars.texts[place] for place in chosen],
            hovertemplate="%{customdata}<br>from %{base:.4g} " + unit.name + " on<extra>" + state + "</extra>",
        )


def _seconds_words(seconds: float) -> str:
    unit = time_unit(seconds)
    return f"{seconds / unit.seconds:.3g} {unit.name}"
