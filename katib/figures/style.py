"""What all figures share: colours and marks of states, the form of axes, and how many points are drawn.

States differ by colour and by mark, so a reader need not distinguish colours. The colours are those of [Okabe2008]
Color universal design, which people with any colour vision can distinguish, on white and on black.
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
"""Colours of several things side by side."""
LINE_COLOURS = tuple(colour for colour in SEQUENCE if colour != YELLOW)
"""Without the one that a thin line on white does not show."""
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
"""Trials that are drawn of a part beside its extremes."""

GOLDEN = 0.6180339887498949
"""Its multiples spread evenly and follow no pattern that the states of trials may have."""

NOTE = "note"
"""Name of the annotation below a figure, by which scripts find it."""
_LINE_LENGTH = 120

MOST_POINTS = 2_000
"""So many marks of one kind are drawn: more cannot be distinguished, and a browser stays quick."""


def new_figure(*, title: str, x: str = "", y: str = "", **layout: Any) -> go.Figure:
    """Return an empty figure of the common form.

    Args:
        title: What it shows, with the name of the experiment.
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
    """Return how many of all are drawn, where it is not all of them; empty where it is."""
    return "" if shown >= total else f"{shown:,} of {total:,} trials shown: a fair sample, and the best"


def add_note(figure: go.Figure, *texts: str) -> None:
    """Write sentences below a figure: what a reader has to know to read it. Empty ones are left out.

    The text stands in lines that fit an image; narrower pages wrap it again, and find it by its name.
    """
    if text := ". ".join(f"{text[0].upper()}{text[1:]}" for text in texts if text):
        lines = wrap(text, _LINE_LENGTH)
        place = {"xref": "paper", "yref": "paper", "x": 1, "y": 0, "yshift": -46, "xanchor": "right", "yanchor": "top"}
        look = {"showarrow": False, "opacity": 0.75, "align": "right", "font": {"size": 11}}
        figure.add_annotation(name=NOTE, text="<br>".join(lines), **place, **look)
        figure.update_layout(margin={"b": 62 + 14 * len(lines)})


def add_level(figure: go.Figure, x: Sequence[float], y: Sequence[float], name: str, colour: str = GREEN) -> None:
    """Add a dotted line between two points, which the pointer does not find: a goal, or what is usual."""
    line = {"color": colour, "dash": "dot", "width": 1.5}
    figure.add_scatter(x=x, y=y, mode="lines", name=name, line=line, hoverinfo="skip")


def line_look(number: int) -> dict[str, str]:
    """Return colour and dash of one of 14 lines in one axis."""
    return {
        "color": LINE_COLOURS[number % len(LINE_COLOURS)],
        "dash": ("solid", "dash")[number // len(LINE_COLOURS) % 2],
    }


def thinned_rows(values: Floats, rows: Rows, most: int = MOST_POINTS) -> Rows:
    """Return at most so many of some trials, in their order: extremes of equally long parts, and an even choice beside.

    The first and the last one are kept, and so is every extreme of a part, so that the outline does not change. Three
    in four are none of these, so that a reader sees where most trials are.

    Args:
        values: Column of what is drawn, finite at `rows`.
        rows: Trials that could be drawn.
        most: Returned at most, 10 at least.
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
    """Return at most so many of some trials, in their order: some for certain, and of the others a fair sample.

    The sample does not look at values, so a cloud has the density that it has with all trials; a choice of extremes
    would show a wider one. Whether a trial is in the sample depends on its own place, so it hardly changes while trials
    are added.

    Args:
        rows: Trials that could be drawn.
        most: Returned at most.
        kept: Some of `rows` that are always drawn; the first ones where they are too many.
    """
    if len(rows) <= most:
        return rows
    certain = np.unique(kept[:most]) if kept is not None else rows[:0]
    others = np.setdiff1d(rows, certain, assume_unique=True)
    room = min(most - len(certain), len(others))
    drawn = others[np.argsort(others * GOLDEN % 1.0, kind="stable")[:room]]
    return np.sort(np.concatenate((certain, drawn)))


def spaced(rows: Rows, most: int) -> Rows:
    """Return at most so many of some rows at even distances, the first and the last among them."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def even_rows(rows: Rows, most: int) -> Rows:
    """Return at most so many of some trials, about evenly spread; half as many at least, where there are enough.

    Whether a trial is among them depends on its own place alone, until there are twice as many: while trials are added
    and end, the choice stays, so that what was read for it is of use again.
    """
    places_of = rows * GOLDEN % 1.0
    share = 1.0
    while (places_of < share).sum() > most:
        share /= 2
    return rows[places_of < share]


def places(mask: npt.NDArray[np.bool_]) -> Rows:
    """Return the places at which a mask is true."""
    return np.flatnonzero(mask).astype(np.int64)


def html_safe(texts: Sequence[str]) -> list[str]:
    """Return texts for hover labels and axes, where Plotly would read some HTML."""
    return [text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for text in texts]
