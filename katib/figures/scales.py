"""How values and times are put on axes: logarithmic ones, outliers that would flatten all others, units of time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from katib.figures.trials import Floats

_FEWEST = 8
"""With fewer values outliers cannot be recognized."""
_LOG_RATIO = 1_000.0
"""Positive values that differ by so much are drawn by their magnitude."""
_COMMON = (5, 95)
"""Percentiles between which most values are."""
_FENCE = 1.5
"""Values farther from these, in lengths of what lies between them, are outliers."""
_OUTLYING = 4.0
"""An axis is cut where it would be so many times as long with the outliers."""
_MARGIN = 0.08
_LARGEST_SINGLE = 1e30
_SMALLEST_SINGLE = 1e-30
_LARGEST_OF_SPREAD = 1e4
"""Numbers that are so many times as large as what they differ by keep all their digits."""

_UNITS = (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0))
_FEWEST_OF_A_UNIT = 3.0


class ValueAxis(NamedTuple):
    """How values are shown on an axis.

    Attributes:
        layout: Plotly's settings of it.
        note: What is not to be seen on it, in a sentence; empty when everything is.
    """

    layout: dict[str, Any]
    note: str = ""


class TimeUnit(NamedTuple):
    """The unit of a duration: `minutes`, of 60 seconds."""

    name: str
    seconds: float


def value_axis(values: Floats, *, maximize: bool | None = None) -> ValueAxis:
    """Return an axis on which values can be distinguished.

    A few values that are far from all others, as diverged trainings give them, would make a line of the rest: the axis
    ends before them, never on the better side, and the note counts them.

    Args:
        values: What is drawn; what is not finite is left out.
        maximize: Which side is the better one; None: neither.
    """
    finite = values[np.isfinite(values)]
    if len(finite) < _FEWEST:
        return ValueAxis({})
    smallest, largest = float(finite.min()), float(finite.max())
    if smallest > 0 and largest / smallest >= _LOG_RATIO:
        return ValueAxis({"type": "log", "exponentformat": "power"})
    low, high = (float(bound) for bound in np.percentile(finite, _COMMON))
    fence = _FENCE * (high - low)
    above = np.inf if maximize is True else high + fence
    below = -np.inf if maximize is False else low - fence
    common = finite[(finite >= below) & (finite <= above)]
    low, high = float(common.min()), float(common.max())
    if high <= low or largest - smallest <= _OUTLYING * (high - low):
        return ValueAxis({})
    beyond = len(finite) - len(common)
    margin = _MARGIN * (high - low)
    note = f"{beyond:,} {'values lie' if beyond != 1 else 'value lies'} beyond the axis; a double click shows them"
    return ValueAxis({"range": [low - margin, high + margin]}, note)


def time_unit(seconds: float) -> TimeUnit:
    """Return the unit in which to show a time of this length: the largest of which it has three."""
    for name, length in _UNITS:
        if seconds >= _FEWEST_OF_A_UNIT * length:
            return TimeUnit(name, length)
    return TimeUnit("seconds", 1.0)


def compact(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
    """Return numbers in half the space where the difference cannot be seen in a picture."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return values.astype(np.float32)
    sizes = np.abs(finite[finite != 0])
    spread = float(finite.max() - finite.min())
    out_of_range = len(sizes) and (sizes.max() > _LARGEST_SINGLE or sizes.min() < _SMALLEST_SINGLE)
    if out_of_range or (spread and float(np.abs(finite).max()) > _LARGEST_OF_SPREAD * spread):
        return values
    return values.astype(np.float32)
