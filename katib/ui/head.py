"""The large figures above an experiment: its best value, its trials, how many were stopped or failed. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np

from katib.api.types import Experiment
from katib.figures.data import Measure, improvements, measure_of
from katib.figures.style import places, spaced
from katib.figures.trials import TrialTable, objectives_of, strategy_words
from katib.tuning.reading import completed_count, lost_count, seconds_run, stops_early
from katib.ui.numbers import four_digits

WIDTH, HEIGHT = 120, 28
"""Of the line of the best so far, in the units of its picture."""
_MOST_CORNERS = 60
_FEWEST_FOR_A_CHANGE = 10
_TENTH = 0.1
_UNITS = (("a second", 1.0), ("a minute", 60.0), ("an hour", 3_600.0), ("a day", 86_400.0))


def head_figures(experiment: Experiment, trials: TrialTable | None, now: datetime) -> dict[str, Any]:
    """Return the large figures of an experiment; what needs its trials is empty while they are being read.

    Args:
        experiment: The Experiment.
        trials: Of it; None: not read yet.
        now: What still runs is counted until then.
    """
    measure = None if trials is None else measure_of(trials)
    has_best = measure is not None and measure.best is not None
    return {
        "strategy": strategy_words(experiment, objectives_of(experiment)[0].name),
        "spark": _line(measure) if measure is not None and has_best else "",
        "change": _change(measure) if measure is not None and has_best else "",
        "rate": _rate(experiment, now),
        "stops": stops_early(experiment),
        "stopped": experiment.status.trials_early_stopped,
        "lost": lost_count(experiment),
        "size": (WIDTH, HEIGHT),
    }


def _line(measure: Measure) -> str:
    """Return the best so far as the points of a line in steps that falls, or rises where larger is better."""
    costs = measure.costs
    corners = spaced(improvements(costs), _MOST_CORNERS)
    last = len(costs) - 1
    best = costs[corners]
    if len(corners) < 2 or last < 1:  # noqa: PLR2004 - a line has two ends
        return ""
    share = (best - best[-1]) / (best[0] - best[-1])  # 1 at the first value, 0 at the best one
    heights = (1 - share if measure.maximize else share) * (HEIGHT - 4)
    y = HEIGHT - 2 - heights
    x = corners / last * (WIDTH - 4) + 2
    points = [f"{x[0]:.1f},{y[0]:.1f}"]
    for before, across, down in zip(y[:-1], x[1:], y[1:], strict=True):
        points += [f"{across:.1f},{before:.1f}", f"{across:.1f},{down:.1f}"]
    return " ".join([*points, f"{WIDTH - 2},{y[-1]:.1f}"])


def _change(measure: Measure) -> str:
    """Return by how much the best value got better over the last tenth of the measured trials."""
    measured = places(measure.drawn)
    if len(measured) < _FEWEST_FOR_A_CHANGE:
        return ""
    first = measured[-max(1, round(len(measured) * _TENTH))]
    costs = measure.costs
    before, after = costs[:first].min(), costs.min()
    if not np.isfinite(before):
        return "the first value within the constraints came in the last tenth of the trials"
    if before == after:
        return "no better over the last tenth of the trials"
    return f"{'+' if measure.maximize else '-'}{four_digits(float(before - after))} over the last tenth of the trials"


def _rate(experiment: Experiment, now: datetime) -> str:
    """Return how many trials end in a time: `3.4 a minute`; empty before two have."""
    done, seconds = completed_count(experiment), seconds_run(experiment, now)
    if done < 2 or not seconds:  # noqa: PLR2004 - one trial is no rate
        return ""
    for unit, length in _UNITS:
        if (rate := done / seconds * length) >= 1:
            return f"{rate:.2g} {unit}" if rate < 10 else f"{rate:,.0f} {unit}"  # noqa: PLR2004 - two digits
    return f"{done / seconds * _UNITS[-1][1]:.2g} a day"
