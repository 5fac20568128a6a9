"""Tables of trials for figures: columns in, no experiment needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from katib.figures.data import ExperimentData
from katib.figures.trials import STATES, Objective, ParameterInfo, TrialTable
from katib.model.types import Experiment, ObjectMeta

Numbers = Sequence[float] | np.ndarray

LR = ParameterInfo("lr", "double", log=True, low=1e-5, high=1e-1)
MOMENTUM = ParameterInfo("momentum", "double", low=0.0, high=1.0)
LAYERS = ParameterInfo("layers", "int", low=1, high=8)
OPTIMIZER = ParameterInfo("optimizer", "categorical", choices=("adam", "sgd", "<b>lion</b>"))

MINIMIZE_LOSS = (Objective("loss", maximize=False),)


def a_table(
    values: Mapping[ParameterInfo, Numbers],
    metrics: Mapping[str, Numbers],
    *,
    objectives: Sequence[Objective] = MINIMIZE_LOSS,
    states: Sequence[str] | None = None,
    feasible: Sequence[bool] | None = None,
    names: Sequence[str] | None = None,
) -> TrialTable:
    """Return a table of trials that succeeded one after the other, unless it is said otherwise."""
    count = len(next(iter(metrics.values())))
    created = 1_700_000_000.0 + np.arange(count)
    return TrialTable(
        np.array(names or [f"demo-{number:05d}" for number in range(count)], dtype=object),
        np.array([STATES.index(state) for state in states or ["Succeeded"] * count], dtype=np.int8),
        created,
        created,
        created + 10.0,
        np.full(count, 10.0),
        {parameter.name: np.array(column, dtype=np.float64) for parameter, column in values.items()},
        {name: np.array(column, dtype=np.float64) for name, column in metrics.items()},
        np.array([True] * count if feasible is None else feasible, dtype=np.bool_),
        tuple(values),
        tuple(objectives),
    )


def data_of(table: TrialTable, name: str = "demo") -> ExperimentData:
    """Return what figures draw of a table."""
    return ExperimentData(Experiment(metadata=ObjectMeta(name=name, namespace="default")), table)


def many_trials(count: int, seed: int = 5) -> TrialTable:
    """Return random trials with every kind of parameter, a conditional one among them, and every way to end."""
    draw = np.random.default_rng(seed)
    optimizer = draw.integers(0, 3, count).astype(np.float64)
    lr = 10 ** draw.uniform(-5, -1, count)
    momentum = np.where(optimizer == 1, draw.uniform(0, 1, count), np.nan)
    states = draw.choice(["Succeeded", "EarlyStopped", "Failed", "Running"], count, p=[0.8, 0.1, 0.06, 0.04])
    loss = (np.log10(lr) + 3) ** 2 + 0.3 * (optimizer == 0) + draw.normal(0, 0.05, count)
    layers = draw.integers(1, 9, count).astype(np.float64)
    ended = np.isin(states, ["Succeeded", "EarlyStopped"])
    metrics = {
        "loss": np.where(ended, loss, np.nan),
        "seconds": np.where(ended, layers * draw.uniform(1, 2, count), np.nan),
    }
    values = {LR: lr, MOMENTUM: momentum, LAYERS: layers, OPTIMIZER: optimizer}
    return a_table(values, metrics, states=list(states), feasible=list(draw.random(count) < 0.9))
