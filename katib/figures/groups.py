"""Groups of experiments or trials: for each the mean of its lines, with a band of one standard deviation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from katib.figures.axes import compact, hovered, number
from katib.figures.style import MOST_LINES, html_safe, line_look, spaced
from katib.figures.trials import Floats, TrialTable, number_of
from katib.model.marks import Marks

if TYPE_CHECKING:
    import plotly.graph_objects as go

TAG = "tag"
"""Name of the choice of groups by tags."""
NONE = "none"
"""Group of those without a tag or a value."""

_MOST_VALUES = 6
"""Maximum number of different numbers with a group each; of more the thirds are the groups."""
_PARTS = 3
_POINTS = 200
_BAND = 0.18

Line = tuple[Floats, Floats]
"""Horizontal places in order, and the values there."""


class MeanLine(NamedTuple):
    """The mean of some lines.

    Attributes:
        x: Horizontal places.
        mean: The mean there of the lines with a value.
        low, high: One standard deviation below and above it, within the values; equal to it for a single line.
    """

    x: Floats
    mean: Floats
    low: Floats
    high: Floats


def groups_by_value(texts: Sequence[str]) -> dict[str, list[int]]:
    """Return the members of groups with the same text; of many different numbers the thirds, as `0.01 to 0.1`.

    Args:
        texts: A text for each member; empty: in the group `none`.
    """
    numbers = np.array([number_of(text) for text in texts])
    if len(set(texts)) > _MOST_VALUES and np.isfinite(numbers[[text != "" for text in texts]]).all():
        known = np.flatnonzero(np.isfinite(numbers))
        parts = np.array_split(known[np.argsort(numbers[known], kind="stable")], _PARTS)
        found = {f"{number(numbers[part[0]])} to {number(numbers[part[-1]])}": sorted(part.tolist()) for part in parts}
        absent = np.flatnonzero(~np.isfinite(numbers)).tolist()
        return found | ({NONE: absent} if absent else {})
    names = sorted(set(texts), key=lambda text: (text == "", float(np.nan_to_num(number_of(text), nan=math.inf)), text))
    return {name or NONE: [i for i, text in enumerate(texts) if text == name] for name in names}


def groups_by_tag(tags: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    """Return the members of each tag, the most frequent first, and those without one; not of a tag that all share."""
    known = dict.fromkeys(tag for own in tags for tag in own)
    found = {tag: [i for i, own in enumerate(tags) if tag in own] for tag in known}
    telling = {tag: members for tag, members in found.items() if len(members) < len(tags)} or found
    absent = [i for i, own in enumerate(tags) if not set(own) & set(telling)]
    ordered = dict(sorted(telling.items(), key=lambda pair: -len(pair[1])))
    return ordered | ({NONE: absent} if absent else {})


def trial_groups(trials: TrialTable, rows: Iterable[int], by: str) -> dict[str, list[int]]:
    """Return the indices in `rows` of trials in groups by a parameter or `tag`."""
    if by == TAG:
        return groups_by_tag([trials.marks.get(str(trials.names[row]), Marks()).tags for row in rows])
    return groups_by_value([trials.parameter_text(by, row) for row in rows])


def mean_line(lines: Sequence[Line], *, held: bool) -> MeanLine:
    """Return the mean of lines.

    Args:
        lines: At least one, each with at least one finite value.
        held: Whether a line is a step function that keeps its last value, as the best so far does; else it is
            interpolated, and has no value after its end.
    """
    clean = [(x[known], y[known]) for x, y in lines for known in [np.isfinite(x) & np.isfinite(y)] if known.any()]
    grid = np.unique(np.concatenate([x for x, _ in clean]))
    grid = grid[spaced(np.arange(len(grid)), _POINTS)]
    values = np.array([_held(grid, *line) if held else np.interp(grid, *line, math.nan, math.nan) for line in clean])
    if held:  # each step as two points
        grid, values = np.repeat(grid, 2)[1:], np.repeat(values, 2, axis=1)[:, :-1]
    counts = np.isfinite(values).sum(axis=0)
    filled = np.where(np.isfinite(values), values, 0.0)
    mean = filled.sum(axis=0) / counts
    spread = np.sqrt((np.where(np.isfinite(values), values - mean, 0.0) ** 2).sum(axis=0) / np.maximum(counts - 1, 1))
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    return MeanLine(grid, mean, np.maximum(mean - spread, low), np.minimum(mean + spread, high))


def _held(grid: Floats, x: Floats, y: Floats) -> Floats:
    place = np.searchsorted(x, grid, side="right") - 1
    return np.where(place >= 0, y[np.maximum(place, 0)], np.nan)


def add_groups_of_lines(
    figure: go.Figure, groups: Mapping[str, Iterable[int]], lines: Sequence[Line], *, held: bool
) -> str:
    """Add the mean and the band of each group, and return a note.

    Args:
        groups: Indices of lines by the name of the group.
        lines: All lines; those without a finite value are left out.
        held: As in `mean_line`.
    """
    for index, (name, members) in enumerate(list(groups.items())[:MOST_LINES]):
        own = [lines[member] for member in members if np.isfinite(lines[member][1]).any()]
        if not own:
            continue
        line, look, [safe] = mean_line(own, held=held), line_look(index), html_safe([name])
        shown = f"{safe} ({len(own)})"
        if len(own) > 1:
            figure.add_scatter(
                x=compact(np.concatenate((line.x, line.x[::-1]))),
                y=compact(np.concatenate((line.high, line.low[::-1]))),
                mode="lines",
                line={"width": 0},
                fill="toself",
                fillcolor=look["color"],
                opacity=_BAND,
                hoverinfo="skip",
                showlegend=False,
                legendgroup=shown,
                name=shown,
            )
        figure.add_scatter(
            x=compact(line.x),
            y=compact(line.mean),
            mode="lines" if len(line.x) > 1 else "markers",
            line={"width": 2.5, **look},
            name=shown,
            legendgroup=shown,
            hovertemplate=f"{hovered('x', line.x)}: {hovered('y', line.mean)}<extra>{shown}</extra>",
        )
    left = f"; {MOST_LINES} of {len(groups)} groups are drawn" if len(groups) > MOST_LINES else ""
    return f"mean of each group, and one standard deviation on both sides{left}"
