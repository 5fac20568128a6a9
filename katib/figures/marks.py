"""Marks of measured trials in the plane: groups, and the star of the best."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from katib.figures.axes import ABSENT, CATEGORICAL, Axis, number, single
from katib.figures.style import GREY, ORANGE, STATE_MARKS, html_safe
from katib.figures.trials import Floats, Rows, TrialTable

if TYPE_CHECKING:
    import plotly.graph_objects as go

INFEASIBLE_MARK = "square-open"
_JITTER = 0.28
"""Share of the distance between two choices over which marks are spread."""
_LONGEST = 40


@dataclass(frozen=True, slots=True)
class MarkGroup:
    """Trials with the same mark.

    Attributes:
        symbol: Plotly's symbol.
        chosen: Mask of the given trials.
    """

    name: str
    symbol: str
    chosen: npt.NDArray[np.bool_]


def mark_groups(trials: TrialTable, rows: Rows) -> Iterator[MarkGroup]:
    """Yield the groups of marks: by state, and by feasibility."""
    feasible = trials.feasible[rows]
    states = ("EarlyStopped", "Succeeded")
    groups = [(state, STATE_MARKS[state], feasible & trials.in_states(state)[rows]) for state in states]
    for name, symbol, chosen in [("infeasible", INFEASIBLE_MARK, ~feasible), *groups]:
        if chosen.any():
            yield MarkGroup(name, symbol, chosen)


def add_groups(
    figure: go.Figure,
    groups: Iterable[MarkGroup],
    points: tuple[Floats, Floats],
    marker: Mapping[str, Any],
    labels: Sequence[Any],
    hover: str,
    **place: int,
) -> None:
    """Add the marks of measured trials, coloured by the figure's `coloraxis`.

    Args:
        points: Horizontal and vertical coordinates of the trials.
        marker: Plotly's, with the `color` of each trial.
        labels: Label of each trial, for `hover`.
        hover: Plotly's template.
        place: `row` and `col` of a figure with several parts.
    """
    for group in groups:
        x, y = (single(places[group.chosen]) for places in points)
        colours = {"color": marker["color"][group.chosen], "coloraxis": "coloraxis"}
        figure.add_scatter(
            x=x,
            y=y,
            mode="markers",
            name=group.name,
            legendgroup=group.name,
            showlegend=False,
            marker={"symbol": group.symbol, **marker, **colours},
            customdata=[label for label, chosen in zip(labels, group.chosen, strict=True) if chosen],
            hovertemplate=hover,
            **place,
        )


def spread_out(axis: Axis, values: Floats, rows: Rows, seed: int) -> Floats:
    """Return coordinates on an axis, with the marks of a choice beside each other.

    Args:
        rows: The drawn trials: each keeps its offset.
        seed: Different for the other axis of the same plane.
    """
    coordinates = axis.coordinates(values)
    if axis.scale != CATEGORICAL or not len(rows):
        return coordinates
    shifts = np.random.default_rng(seed).uniform(-_JITTER, _JITTER, int(rows.max()) + 1)
    return coordinates + shifts[rows]


def texts_of(trials: TrialTable, name: str, rows: Rows) -> list[str]:
    """Return the values of a parameter for hover labels."""
    texts = []
    for text in (trials.parameter_text(name, int(row)) for row in rows):
        try:
            texts.append(number(float(text)) if text else ABSENT)
        except ValueError:
            texts.append(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
    return html_safe(texts)


def add_legend(figure: go.Figure, groups: Iterable[MarkGroup]) -> None:
    """Add legend entries in grey for marks whose colour has another meaning.

    Args:
        figure: The figure; its traces have `legendgroup` and no entry of their own.
    """
    for group in groups:
        figure.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            name=group.name,
            legendgroup=group.name,
            marker={"symbol": group.symbol, "size": 7, "color": GREY},
        )


def add_best(
    figure: go.Figure, x: float, y: float, name: str, *, text: str = "", legend: bool = True, **place: Any
) -> None:
    """Add the star of the best trial.

    Args:
        text: Text beside it; empty: none.
        place: `row` and `col` of a figure with several parts.
    """
    figure.add_scatter(
        x=[x],
        y=[y],
        mode="markers+text" if text else "markers",
        text=[text] if text else None,
        textposition="top center",
        name="best",
        legendgroup="best",
        showlegend=legend,
        marker={"symbol": "star", "size": 15, "color": ORANGE, "line": {"color": "#000000", "width": 1}},
        hovertemplate=f"{html_safe([name])[0]}<extra>best</extra>",
        **place,
    )
