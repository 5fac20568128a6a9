"""Shared style of all figures: colours and marks of states, the form of axes, and limits on drawn points.

States differ by colour and by mark, so a reader need not distinguish colours. The colours are those of [Okabe2008]
Color universal design, which are distinguishable with any colour vision, on white and on black.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from katib.figures.trials import Floats, Rows

if TYPE_CHECKING:
    import plotly.graph_objects as go

BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
    "#7F7F7F",
)
SEQUENCE = (BLUE, ORANGE, GREEN, PURPLE, RED, SKY, YELLOW, GREY)
"""Colours of several lines or marks."""
LINE_COLOURS = tuple(colour for colour in SEQUENCE if colour != YELLOW)
"""Without the one that is invisible as a thin line on white."""
MOST_LINES = 2 * len(LINE_COLOURS)
"""Two rounds of the colours, distinguished by dashes."""

STATE_COLOURS = {
    "Succeeded": BLUE,
    "EarlyStopped": PURPLE,
    "Running": ORANGE,
    "Pending": YELLOW,
    "Failed": RED,
    "MetricsUnavailable": GREY,
    "Killed": GREY,
}
STATE_MARKS = {
    "Succeeded": "circle",
    "EarlyStopped": "triangle-down",
    "Running": "circle-open",
    "Pending": "hourglass-open",
    "Failed": "x",
    "MetricsUnavailable": "diamond-open",
    "Killed": "square-x-open",
}
_OF_A_PART = 6
"""Trials drawn of a part besides its extremes."""

GOLDEN = 0.6180339887498949
"""Multiplier for even spreading; its multiples follow no pattern that the states of trials may have."""

NOTE = "note"
"""Name of the annotation below a figure, by which scripts find it."""
_LINE_LENGTH = 120

MOST_POINTS = 2_000
"""Maximum number of marks of one kind: more cannot be distinguished, and would slow a browser down."""


def new_figure(*, title: str, x: str = "", y: str = "", **layout: Any) -> go.Figure:
    """Return an empty figure in the common style.

    Args:
        title: Its content, with the name of the experiment.
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
        layout: More of Plotly's layout.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        template="plotly_white",
        title={"text": title},
        xaxis={"title": {"text": x}, "zeroline": False},
        yaxis={"title": {"text": y}},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0.0},
        margin={"l": 60, "r": 20, "t": 70, "b": 50},
        hovermode="closest",
        colorway=list(SEQUENCE),
    )
    figure.update_layout(**layout)
    return figure


def shown_words(shown: int, total: int) -> str:
    """Return how many of all trials are shown; empty if all are."""
    return "" if shown >= total else f"{shown:,} of {total:,} trials shown: a fair sample, and the best"


def add_note(figure: go.Figure, *texts: str) -> None:
    """Write notes below a figure. Empty ones are left out.

    The text is wrapped to fit an image; narrower pages wrap it again, and find it by its name.
    """
    if text := ". ".join(f"{text[0].upper()}{text[1:]}" for text in texts if text):
        lines = wrap(text, _LINE_LENGTH)
        place = {"xref": "paper", "yref": "paper", "x": 1, "y": 0, "yshift": -46, "xanchor": "right", "yanchor": "top"}
        look = {"showarrow": False, "opacity": 0.75, "align": "right", "font": {"size": 11}}
        figure.add_annotation(name=NOTE, text="<br>".join(lines), **place, **look)
        figure.update_layout(margin={"b": 62 + 14 * len(lines)})


def add_level(figure: go.Figure, x: Sequence[float], y: Sequence[float], name: str, colour: str = GREEN) -> None:
    """Add a dotted line between two points without hover label: a goal, or a typical value."""
    line = {"color": colour, "dash": "dot", "width": 1.5}
    figure.add_scatter(x=x, y=y, mode="lines", name=name, line=line, hoverinfo="skip")


def line_look(number: int) -> dict[str, str]:
    """Return colour and dash of one of 14 lines in one plot."""
    return {
        "color": LINE_COLOURS[number % len(LINE_COLOURS)],
        "dash": ("solid", "dash")[number // len(LINE_COLOURS) % 2],
    }


def thinned_rows(values: Floats, rows: Rows, most: int = MOST_POINTS) -> Rows:
    """Return at most `most` of some trials, in order: extremes of equal parts, and an even selection of the others.

    The first and the last one and the extremes of each part are kept, so that the outline is unchanged. Three in four
    are from the even selection, which shows the density of trials.

    Args:
        values: Column of the drawn values, finite at `rows`.
        rows: Trials that could be drawn.
        most: Maximum number of results, 10 at least.
    """
    if len(rows) <= most:
        return rows
    drawn = values[rows]
    parts = max(1, (most - 2) // (_OF_A_PART + 2))
    bounds = np.linspace(0, len(rows), parts + 1).astype(np.int64)
    others = np.linspace(0, len(rows) - 1, parts * _OF_A_PART).astype(np.int64).tolist()
    kept = {0, len(rows) - 1, *others}
    for first, end in pairwise(bounds):
        part = drawn[first:end]
        kept |= {int(first + np.argmin(part)), int(first + np.argmax(part))}
    return rows[np.array(sorted(kept), dtype=np.int64)]


def fair_rows(rows: Rows, most: int, kept: Rows | None = None) -> Rows:
    """Return at most `most` of some trials, in order: the kept ones, and a fair sample of the others.

    The sample is independent of values, so a cloud keeps its density; a selection of extremes would look wider. A
    trial's membership depends on its own index, so the sample hardly changes while trials are added.

    Args:
        rows: Trials that could be drawn.
        most: Maximum number of results.
        kept: Some of `rows` that are always drawn; only the first ones if they are too many.
    """
    if len(rows) <= most:
        return rows
    certain = np.unique(kept[:most]) if kept is not None else rows[:0]
    others = np.setdiff1d(rows, certain, assume_unique=True)
    room = min(most - len(certain), len(others))
    drawn = others[np.argsort(others * GOLDEN % 1.0, kind="stable")[:room]]
    return np.sort(np.concatenate((certain, drawn)))


def spaced(rows: Rows, most: int) -> Rows:
    """Return at most `most` rows at even distances, including the first and the last."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def even_rows(rows: Rows, most: int) -> Rows:
    """Return at most `most` of some trials, about evenly spread; at least half as many, if available.

    A trial's membership depends on its own index alone, until their number has doubled: while trials are added and end,
    the selection is stable, so that curves read for it can be reused.
    """
    places_of = rows * GOLDEN % 1.0
    share = 1.0
    while (places_of < share).sum() > most:
        share /= 2
    return rows[places_of < share]


def places(mask: npt.NDArray[np.bool_]) -> Rows:
    """Return the indices at which a mask is true."""
    return np.flatnonzero(mask).astype(np.int64)


def html_safe(texts: Sequence[str]) -> list[str]:
    """Escape texts for hover labels and axes, which Plotly would read as HTML."""
    return [text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for text in texts]
