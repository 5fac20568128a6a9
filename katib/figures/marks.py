"""Marks of measured trials in the plane: the groups that they distinguish, and the star of the best."""

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
"""Share of the distance between two choices by which marks are spread."""
_LONGEST = 40


@dataclass(frozen=True, slots=True)
class MarkGroup:
    """Trials with the same mark.

    Attributes:
        name: Of the legend.
        symbol: Plotly's.
        chosen: Which of the asked trials.
    """

    name: str
    symbol: str
    chosen: npt.NDArray[np.bool_]


def mark_groups(trials: TrialTable, rows: Rows) -> Iterator[MarkGroup]:
    """Yield the groups that marks distinguish: by state, and by whether the constraints hold."""
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
        figure: Gets them.
        groups: Of the drawn trials.
        points: Where the trials stand, across and up.
        marker: Plotly's, with the `color` of each trial.
        labels: Of each trial, for `hover`.
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
    """Return what Plotly is given on an axis, with the marks of a choice beside each other.

    Args:
        axis: Of the parameter.
        values: Of the drawn trials.
        rows: The drawn trials: each keeps its place beside the others.
        seed: Another one for another axis of the same plane.
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
    """Explain marks whose colour means something else, in grey.

    Args:
        figure: Gets it; its traces have `legendgroup` and no entry of their own.
        groups: One entry each.
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


def add_best(figure: go.Figure, x: float, y: float, name: str, *, legend: bool = True, **place: Any) -> None:
    """Add the star of the best trial.

    Args:
        figure: Gets it.
        x: Of the star.
        y: Of the star.
        name: Of the trial.
        legend: Whether the legend explains it.
        place: `row` and `col` of a figure with several parts.
    """
    figure.add_scatter(
        x=[x],
        y=[y],
        mode="markers",
        name="best",
        legendgroup="best",
        showlegend=legend,
        marker={"symbol": "star", "size": 15, "color": ORANGE, "line": {"color": "#000000", "width": 1}},
        hovertemplate=f"{html_safe([name])[0]}<extra>best</extra>",
        **place,
    )
