"""The best so far of several experiments in one picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from katib.figures.axes import compact, hovered, time_unit, value_axis
from katib.figures.data import ExperimentData, FigureOptions, improvements, measure_of
from katib.figures.groups import add_groups_of_lines
from katib.figures.style import MOST_LINES, add_note, html_safe, line_look, new_figure
from katib.figures.trials import Floats

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_EXPERIMENTS = MOST_LINES
_CROWDED = 20.0
"""A linear axis longer than this multiple of the median improvement would show most of them at its beginning."""
_MARKS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star")


class _BestLine(NamedTuple):
    """The best so far of one experiment: its improvements, and the present point."""

    name: str
    x: Floats
    values: Floats
    texts: list[str]


def draw_comparison(
    experiments: Sequence[ExperimentData], choice: FigureOptions, groups: Mapping[str, Sequence[int]] | None = None
) -> go.Figure:
    """Draw a line of the best so far for each experiment, against its trials or the time since it started.

    Time includes the algorithm's cost: one that needs fewer trials but more time between them is slower there.

    Args:
        choice: The metric, and the unit of the horizontal axis.
        groups: Indices of experiments by the name of a group, whose mean is drawn in place of its experiments; None:
            no groups.
    """
    measures = [measure_of(data.trials, choice.metric) for data in experiments]
    lines = [_line(data, choice, label) for data, label in zip(experiments, _labels(experiments), strict=True)]
    longest = max((float(line.x[-1]) for line in lines if len(line.x)), default=0.0)
    corners = np.concatenate([line.x[:-1] for line in lines])
    corners = corners[corners > 0]
    crowded = len(corners) > 0 and longest > _CROWDED * float(np.median(corners))
    unit = time_unit(0.0 if crowded else longest)
    by_time = choice.by == "time"
    title = f"{unit.name} since the first trial started" if by_time else "trials"
    every = np.concatenate([line.values for line in lines])
    axis = value_axis(every, maximize=measures[0].maximize)
    [metric] = html_safe([measures[0].name])
    figure = new_figure(title=f"{metric}: best so far", x=title, y=metric)
    figure.update_layout(
        yaxis=axis.layout,
        xaxis={"type": "log", "dtick": 1} if crowded else {},
        meta={"values": [axis.meta("yaxis")]},
    )
    scale, means = unit.seconds if by_time else 1.0, ""
    if groups is not None:
        means = add_groups_of_lines(figure, groups, [(line.x / scale, line.values) for line in lines], held=True)
    else:
        for number, line in enumerate(lines):
            _add_line(figure, line, number, scale)
    absent = [line.name for line in lines if not len(line.x)]
    note = f"without a value so far: {', '.join(html_safe(absent))}" if absent else ""
    add_note(figure, means, note, axis.note)
    return figure


def why_incomparable(experiments: Sequence[ExperimentData], choice: FigureOptions, *, grouped: bool = False) -> str:
    """Return the reason why experiments cannot be compared; empty if they can."""
    if len(experiments) < 2 or (len(experiments) > MOST_EXPERIMENTS and not grouped):  # noqa: PLR2004 - not with itself
        return f"A comparison is of 2 to {MOST_EXPERIMENTS} experiments, or of groups of more."
    for data in experiments:
        if choice.metric and choice.metric not in data.trials.metrics:
            return f'{data.name} has no metric "{choice.metric}".'
    directions = []
    for data, label in zip(experiments, _labels(experiments), strict=True):
        measure = measure_of(data.trials, choice.metric)
        if measure.maximize is None:
            return f"{data.name} does not optimize {measure.name}, so none of its trials is the best."
        directions.append((label, f"{'maximizes' if measure.maximize else 'minimizes'} {measure.name}"))
    (first, reference), *others = directions
    for name, words in others:
        if words != reference:
            return f"{first} {reference}, but {name} {words}."
    if not any(measure_of(data.trials, choice.metric).best is not None for data in experiments):
        return "No trial of them has a value yet."
    return ""


def _labels(experiments: Sequence[ExperimentData]) -> list[str]:
    """Return the names of experiments, with their namespaces if two have the same name."""
    names = [data.name for data in experiments]
    return [
        f"{data.experiment.namespace}/{data.name}" if names.count(data.name) > 1 else data.name for data in experiments
    ]


def _line(data: ExperimentData, choice: FigureOptions, label: str) -> _BestLine:
    """Return the line of an experiment. By time, trials are in the order of their ends, when values become known."""
    trials, measure = data.trials, measure_of(data.trials, choice.metric)
    costs = measure.costs
    if choice.by != "time":
        order = np.arange(len(costs))
        places = order + 1.0
        last = float(len(costs))
    else:
        order = np.argsort(trials.ended, kind="stable")
        order = order[np.isfinite(trials.ended[order])]
        begin = float(np.nanmin(trials.started)) if np.isfinite(trials.started).any() else math.nan
        places = trials.ended[order] - begin
        last = float(places[-1]) if len(places) else math.nan
    corners = improvements(costs[order])
    if not len(corners):
        return _BestLine(label, np.empty(0), np.empty(0), [])
    rows = order[corners]
    values = -costs[rows] if measure.maximize else costs[rows]
    texts = html_safe(list(trials.names[rows]))
    return _BestLine(label, np.append(places[corners], last), np.append(values, values[-1]), [*texts, texts[-1]])


def _add_line(figure: go.Figure, line: _BestLine, number: int, unit: float) -> None:
    if not len(line.x):
        return
    [name] = html_safe([line.name])
    figure.add_scatter(
        x=compact(line.x / unit),
        y=compact(line.values),
        mode="lines+markers",
        name=name,
        line={"shape": "hv", "width": 2, **line_look(number)},
        marker={"symbol": _MARKS[number % len(_MARKS)], "size": 6},
        customdata=line.texts,
        hovertemplate="%{customdata}<br>%{x:.4g}: " + hovered("y", line.values) + "<extra>" + name + "</extra>",
    )
