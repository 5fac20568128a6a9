"""Selection of curves for figures, and their conversion from readings. Pure: the caller reads them.

A picture shows about 100 curves, so a server reads no more, whatever the number of trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

import numpy as np

from katib.figures.axes import TimeUnit, time_unit
from katib.figures.data import Curve, measure_of
from katib.figures.style import even_rows, places
from katib.figures.trials import Floats, Rows, TrialTable, number_of
from katib.model.metrics import ZERO_TIME, MetricLog

CurveChoice = Callable[[TrialTable], Rows]
"""Selects the trials whose curves a figure draws."""

MOST_CURVES = 100
CURVE_POINTS = 60
"""Maximum points of each curve: a hundred of them then fit the limit of a picture."""

_BEST, _NEWEST, _WORST, _FAILED = 20, 20, 10, 5


def chosen(trials: TrialTable) -> Rows:
    """Return the trials with drawn curves, at most 100, in the order of creation.

    The best, the worst, running ones, the newest of each kind, and an even selection of the others.
    """
    costs = measure_of(trials).costs
    ranked = np.argsort(costs, kind="stable")
    ranked = ranked[np.isfinite(costs[ranked])]
    picked = [
        ranked[:_BEST],
        places(trials.in_states("Running"))[-_NEWEST:],
        places(trials.in_states("EarlyStopped"))[-_NEWEST:],
        ranked[-_WORST:],
        places(trials.in_states("Failed", "MetricsUnavailable", "Killed"))[-_FAILED:],
        places(trials.in_states("Succeeded"))[-_WORST:],
    ]
    kept = np.unique(np.concatenate(picked))
    return np.union1d(kept, even_rows(np.sort(ranked), MOST_CURVES - len(kept)))


def evenly(trials: TrialTable) -> Rows:
    """Return at most 100 trials that have started, evenly spread whatever their values."""
    return even_rows(places(np.isfinite(trials.started)), MOST_CURVES)


def evenly_ended(trials: TrialTable) -> Rows:
    """Return trials that were stopped early and trials that were not, evenly spread, 50 of each at most.

    Empty if none was stopped.
    """
    half = MOST_CURVES // 2 if trials.in_states("EarlyStopped").any() else 0
    if not half:
        return np.empty(0, dtype=np.int64)
    return np.union1d(*(even_rows(places(trials.in_states(state)), half) for state in ("EarlyStopped", "Succeeded")))


def rows_of(trials: TrialTable, names: Container[str]) -> dict[str, int]:
    return {name: row for row, name in enumerate(trials.names.tolist()) if name in names}


def curve_of(readings: Sequence[MetricLog], started: float) -> Curve:
    """Convert readings of one metric to a curve.

    Args:
        readings: In order.
        started: Start of the trial, in seconds since 1970; NaN: unknown, and the first reading replaces it.
    """
    moments = [math.nan if reading.time == ZERO_TIME else reading.time.timestamp() for reading in readings]
    times = np.array(moments, dtype=np.float64)
    if math.isnan(started) and np.isfinite(times).any():
        started = float(np.nanmin(times))
    steps = np.array([math.nan if reading.step is None else reading.step for reading in readings], dtype=np.float64)
    values = np.array([number_of(reading.value) for reading in readings], dtype=np.float64)
    return Curve(values, steps if np.isfinite(steps).any() else None, np.maximum(times - started, 0.0))


class CurveAxis(NamedTuple):
    """The horizontal axis of curves.

    Attributes:
        by: `step`, `time`, or `reading` if a program reports neither.
        note: Why it differs from the requested one; empty if it does not.
    """

    by: str
    title: str
    unit: TimeUnit
    note: str = ""

    def places(self, curve: Curve) -> Floats:
        """Return the place of each reading of a curve; NaN for one without a place on this axis."""
        if self.by == "time":
            return curve.seconds / self.unit.seconds
        if self.by == "step":
            return np.full(len(curve.values), np.nan) if curve.steps is None else curve.steps
        return np.arange(1.0, len(curve.values) + 1)


def curve_axis(curves: Sequence[Curve], by: str) -> CurveAxis:
    """Return the requested axis, or the closest that these curves have.

    Args:
        by: `step` or `time`.
    """
    has_steps = any(curve.steps is not None for curve in curves)
    longest = max((float(np.nanmax(c.seconds)) for c in curves if np.isfinite(c.seconds).any()), default=math.nan)
    unit = time_unit(longest)
    if by == "step" and has_steps:
        return CurveAxis("step", "step", unit)
    if math.isfinite(longest):
        note = "the programs report no steps, so time is shown instead" if by == "step" else ""
        return CurveAxis("time", f"{unit.name} since the start of the trial", unit, note)
    if has_steps:
        return CurveAxis("step", "step", unit, "the readings carry no times, so steps are shown instead")
    return CurveAxis("reading", "reading", unit, "the readings carry neither steps nor times")
