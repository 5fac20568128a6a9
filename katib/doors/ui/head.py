"""The large figures above an experiment: its best value, its trials, stopped and failed ones. Pure."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

import numpy as np

from katib.doors.ui.numbers import four_digits
from katib.figures.data import Measure, improvements, measure_of
from katib.figures.pareto import costs_of, volumes_of
from katib.figures.style import places, spaced
from katib.figures.trials import Floats, Rows, TrialTable, objectives_of, strategy_words
from katib.model.types import Experiment
from katib.model.wording import format_duration
from katib.service.explaining.edges import edge_sentences
from katib.service.explaining.progress import RunProgress
from katib.service.tuning.reading import constraint_words, seconds_run, used_words
from katib.service.tuning.states import completed_count, is_at_rest, is_completed, lost_count, stops_early

WIDTH, HEIGHT = 120, 28
"""Width and height of the line of the best so far, in the units of its picture."""
_MOST_CORNERS = 60
_FEWEST_FOR_A_CHANGE = 10
_TENTH = 0.1
_MOST_CAUSES = 3
_PLANE, _MOST_IN_SPACE = 2, 1_000
"""Maximum number of trials on the line of the hypervolume of more than two objectives, which is slow."""
_UNITS = (("a second", 1.0), ("a minute", 60.0), ("an hour", 3_600.0), ("a day", 86_400.0))


def head_figures(experiment: Experiment, trials: TrialTable | None, now: datetime) -> dict[str, Any]:
    """Return the large figures of an experiment; those that need its trials are empty while they are being read.

    Args:
        experiment: The Experiment.
        trials: Its trials; None: not read yet.
        now: Present time, for running trials.
    """
    measure = None if trials is None else measure_of(trials)
    front = experiment.status.pareto_set
    spark, change, start = "", "", ""
    if trials is not None and front is not None:
        spark, change = _growth(trials)
    elif measure is not None and measure.best is not None:
        spark, change, start = _line_of(measure), _change(measure), _over_the_start(measure)
    status, seconds = experiment.status, elapsed_seconds(experiment, trials, now)
    measured = status.trials_succeeded + status.trials_early_stopped
    return {
        "strategy": strategy_words(experiment, objectives_of(experiment)[0].name),
        "spark": spark,
        "change": change,
        "start": start,
        "next": next_steps(experiment, change, measure),
        "front": None if front is None else {"count": front.trial_count, "volume": front.hypervolume or 0.0},
        "constraints": constraint_words(experiment),
        "measured": measured,
        "feasible": measured - status.trials_infeasible,
        "rate": _rate(experiment, seconds),
        "time": time_words(experiment, now, seconds),
        "causes": [] if trials is None else Counter(trials.failures.values()).most_common(_MOST_CAUSES),
        "used": "; ".join(used_words(experiment).values()),
        "stops": stops_early(experiment),
        "stopped": experiment.status.trials_early_stopped,
        "lost": lost_count(experiment),
        "size": (WIDTH, HEIGHT),
    }


def _line_of(measure: Measure) -> str:
    """Return the best so far as a line that falls, or rises if maximized."""
    corners = spaced(improvements(measure.costs), _MOST_CORNERS)
    best = measure.costs[corners]
    return _line(corners, -best if measure.maximize else best, len(measure.costs) - 1)


def _growth(trials: TrialTable) -> tuple[str, str]:
    """Return the hypervolume as a line, and its growth over the last tenth of the trials."""
    counts = np.isfinite(costs_of(trials, trials.objectives)).all(axis=1)
    if not counts.any() or (len(trials.objectives) > _PLANE and len(trials) > _MOST_IN_SPACE):
        return "", ""
    rows, volumes = volumes_of(trials, trials.objectives)
    last_tenth = len(trials) - max(1, round(len(trials) * _TENTH))
    change = ""
    if rows[0] < last_tenth and len(trials) >= _FEWEST_FOR_A_CHANGE:
        before = volumes[np.searchsorted(rows, last_tenth) - 1]
        grown = float(volumes[-1] - before)
        change = f"{f'+{four_digits(grown)}' if grown else 'no more'} over the last tenth of the trials"
    return _line(rows, volumes, len(trials) - 1), change


def _line(x: Rows, y: Floats, last: int) -> str:
    """Return the points of a line in steps from indices of trials and values; empty if it has no two ends."""
    if len(x) < 2 or last < 1 or y[0] == y[-1]:  # noqa: PLR2004 - a line has two ends
        return ""
    down = HEIGHT - 2 - (y - y.min()) / (y.max() - y.min()) * (HEIGHT - 4)
    across = x / last * (WIDTH - 4) + 2
    points = [f"{across[0]:.1f},{down[0]:.1f}"]
    for before, place, value in zip(down[:-1], across[1:], down[1:], strict=True):
        points += [f"{place:.1f},{before:.1f}", f"{place:.1f},{value:.1f}"]
    return " ".join([*points, f"{WIDTH - 2},{down[-1]:.1f}"])


def _change(measure: Measure) -> str:
    """Return the improvement of the best value over the last tenth of the measured trials."""
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


def _over_the_start(measure: Measure) -> str:
    """Return by how much the best value is better than that of the first measured trial; empty if it is the first."""
    costs = measure.costs[places(measure.drawn)]
    gained = float(costs[0] - costs.min()) if len(costs) else 0.0
    if not np.isfinite(gained) or gained <= 0:
        return ""
    first = four_digits(float(-costs[0] if measure.maximize else costs[0]))
    return f"{four_digits(gained)} better than the first trial ({first})"


def next_steps(experiment: Experiment, change: str, measure: Measure | None) -> list[str]:
    """Return in sentences what to try next.

    Args:
        experiment: The Experiment.
        change: That of its best value over the last tenth of the trials, as `head_figures` has it.
        measure: The values of its trials; None while they are being read.
    """
    found = edge_sentences(experiment)
    if not is_completed(experiment) or measure is None or not change:
        return found
    if not change.startswith(("no better", "no more")):
        what = "front was still growing" if experiment.status.pareto_set else "best value was still improving"
        return [*found, f"The {what}: more trials may help."]
    costs = measure.costs[places(measure.drawn)]
    since = len(costs) - 1 - int(np.argmin(costs))
    if experiment.status.pareto_set is None and since >= max(_FEWEST_FOR_A_CHANGE, len(costs) / 3):
        found.append(
            f"The last {since} trials brought nothing better: another search space may help more than more trials."
        )
    return found


def elapsed_seconds(experiment: Experiment, trials: TrialTable | None, now: datetime) -> float | None:
    """Return how long programs of an experiment have been running; None before it starts.

    Imported trials ran before the experiment was made: theirs is the time from the first start to the last end.
    """
    made = experiment.metadata.creation_timestamp
    if trials is not None and made is not None:
        started, ended = (times[np.isfinite(times)] for times in (trials.started, trials.ended))
        if len(started) and len(ended) and started.min() < made.timestamp() - 1:
            return float(ended.max() - started.min())
    return seconds_run(experiment, now)


def time_words(experiment: Experiment, now: datetime, seconds: float | None) -> str:
    """Return the elapsed time of an experiment, and the remaining one at the present pace; empty before it starts.

    Args:
        experiment: The Experiment.
        now: Present time.
        seconds: Its `elapsed_seconds`.
    """
    start = experiment.status.start_time
    if start is None:
        return ""
    if is_completed(experiment):
        return f"took {format_duration(seconds or 0.0)}"
    if is_at_rest(experiment):
        return f"began {format_duration((now - start).total_seconds())} ago"
    left = RunProgress(experiment, start).seconds_left(seconds or 0.0)
    running = f"running for {format_duration(seconds or 0.0)}"
    return running if left is None else f"{running}, about {format_duration(left)} left"


def _rate(experiment: Experiment, seconds: float | None) -> str:
    """Return the rate of ended trials: `3.4 a minute`; empty before two have ended."""
    done = completed_count(experiment)
    if done < 2 or not seconds:  # noqa: PLR2004 - one trial is no rate
        return ""
    for unit, length in _UNITS:
        if (rate := done / seconds * length) >= 1:
            return f"{rate:.2g} {unit}" if rate < 10 else f"{rate:,.0f} {unit}"  # noqa: PLR2004 - two digits
    return f"{done / seconds * _UNITS[-1][1]:.2g} a day"
