"""Tables of trials for figures, made without objects: 100,000 trials in a moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from katib.figures.curves import CurveChoice
from katib.figures.data import Curve, ExperimentData
from katib.figures.trials import STATES, Objective, ParameterInfo, TrialTable
from katib.model.types import Experiment

START = 1_900_000_000.0


def make_table(
    values: Sequence[float],
    states: Sequence[str] = (),
    *,
    metric: str = "loss",
    maximize: bool = False,
    goal: float | None = None,
    more: Mapping[str, Sequence[float]] | None = None,
    feasible: Sequence[bool] = (),
    started: Sequence[float] = (),
    ended: Sequence[float] = (),
    objectives: Sequence[Objective] = (),
) -> TrialTable:
    """Return a table of trials `trial-1`, `trial-2`, ... that ran one after the other, ten seconds each.

    Args:
        values: Of the objective.
        states: Of the trials; all succeeded by default.
        metric: Name of the objective.
        maximize: Whether larger is better.
        goal: Of the objective.
        more: Columns of further metrics.
        feasible: Whether constraints hold; all by default.
        started: Seconds after START.
        ended: Seconds after START.
        objectives: In place of the one.
    """
    count = len(values)
    begin = np.asarray(started, dtype=np.float64) if len(started) else np.arange(count) * 10.0
    end = np.asarray(ended, dtype=np.float64) if len(ended) else begin + 10.0
    names = np.array([f"trial-{number}" for number in range(1, count + 1)], dtype=object)
    return TrialTable(
        names,
        np.array([STATES.index(state) for state in states or ["Succeeded"] * count], dtype=np.int8),
        START + begin,
        START + begin,
        START + end,
        end - begin,
        {"lr": np.linspace(0.001, 0.1, count) if count else np.empty(0)},
        {metric: np.asarray(values, dtype=np.float64)}
        | {name: np.asarray(column, dtype=np.float64) for name, column in (more or {}).items()},
        np.asarray(feasible, dtype=np.bool_) if len(feasible) else np.ones(count, dtype=np.bool_),
        (ParameterInfo("lr", "double", True, low=0.001, high=0.1),),
        tuple(objectives) or (Objective(metric, maximize, goal),),
    )


def make_data(
    table: TrialTable, *, name: str = "demo", curves: Mapping[str, Curve] | None = None, **spec: Any
) -> ExperimentData:
    """Return what a figure is drawn from."""
    experiment = Experiment.decode({"metadata": {"name": name}, "spec": spec})
    ended = table.ended[np.isfinite(table.ended)]
    return ExperimentData(experiment, table, curves or {}, float(ended.max()) if len(ended) else START + 60)


def large_table(count: int, *, slots: int = 8, seed: int = 0, **changes: Any) -> TrialTable:
    """Return many trials in random states that ran in some slots side by side."""
    random = np.random.default_rng(seed)
    states = random.choice(
        ["Succeeded", "EarlyStopped", "Failed", "MetricsUnavailable"], size=count, p=[0.6, 0.3, 0.07, 0.03]
    )
    progress = np.linspace(0, 1, count)
    values = 0.08 + 0.9 * np.exp(-3 * progress * random.random(count)) * random.random(count)
    values[np.isin(states, ["Failed", "MetricsUnavailable"])] = np.nan
    durations = random.gamma(4, 10, size=count) * np.where(states == "EarlyStopped", 0.3, 1.0)
    started = np.empty(count)
    for slot in range(slots):
        own = np.arange(slot, count, slots)
        ends = np.cumsum(durations[own] + 1.0)
        started[own] = ends - durations[own] - 1.0
    order = np.argsort(started, kind="stable")
    return make_table(
        values[order], list(states[order]), started=started[order], ended=(started + durations)[order], **changes
    )


def with_curves(data: ExperimentData, choose: CurveChoice, *, steps: bool = True, points: int = 60) -> ExperimentData:
    """Return data with a falling curve for each trial that a figure asks for; stopped ones are shorter."""
    trials = data.trials
    curves = {}
    for row in choose(trials):
        length = points // 3 + int(row) % 7 if trials.state_of(int(row)) == "EarlyStopped" else points
        place = np.arange(1.0, length + 1)
        end = trials.objective_values[row]
        values = (end if np.isfinite(end) else 0.9) + np.exp(-place / 12) * (1 + row % 5)
        if trials.state_of(int(row)) == "Failed":
            values[-3:] = np.nan
        curves[str(trials.names[row])] = Curve(values, place if steps else None, place * 2.0)
    return ExperimentData(data.experiment, trials, curves, data.now)


def trace(figure: Any, name: str) -> Any:
    """Return the one trace of that name."""
    [found] = [trace for trace in figure.data if trace.name == name]
    return found
