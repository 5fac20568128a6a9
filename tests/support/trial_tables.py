"""Tables of many trials, made without a service."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from katib.figures.trials import STATES, Objective, ParameterInfo, TrialTable

START = 1_900_000_000.0

SPACE = (
    ParameterInfo("lr", "double", log=True, low=1e-5, high=1.0),
    ParameterInfo("layers", "int", low=1, high=8),
    ParameterInfo("optimizer", "categorical", choices=("sgd", "adam", "rmsprop")),
)


def made_table(count: int, *, seed: int = 0, maximize: bool = True) -> TrialTable:
    """Return a table of trials in all states; values and durations are missing here and there."""
    rng = np.random.default_rng(seed)
    states = rng.choice(len(STATES), count, p=_shares()).astype(np.int8)
    ended = np.isin(states, [STATES.index(state) for state in ("Succeeded", "EarlyStopped")])
    accuracy = np.where(ended, np.round(rng.random(count), 3), math.nan)
    created = START + np.arange(count)
    durations = np.where(ended, rng.integers(1, 500, count), math.nan)
    return TrialTable(
        names=np.array([f"demo-{rng.bytes(4).hex()}" for _ in range(count)], dtype=object),
        states=states,
        created=created,
        started=created + 1,
        ended=created + 1 + durations,
        durations=durations,
        values={
            "lr": 10 ** rng.uniform(-5, 0, count),
            "layers": rng.integers(1, 9, count).astype(np.float64),
            "optimizer": np.where(rng.random(count) < 0.1, math.nan, rng.integers(0, 3, count)),
        },
        metrics={"accuracy": accuracy, "loss": 1 - accuracy},
        feasible=np.ones(count, dtype=np.bool_),
        parameters=SPACE,
        objectives=(Objective("accuracy", maximize),),
    )


def plain_rows(table: TrialTable) -> list[dict[str, Any]]:
    """Return the trials as plain values by the keys of columns; None for what a trial does not have."""

    def plain(value: float) -> float | None:
        return None if math.isnan(value) else float(value)

    rows = []
    for row in range(len(table)):
        optimizer = plain(table.values["optimizer"][row])
        rows.append(
            {
                "trial": table.names[row],
                "number": row + 1,
                "state": table.state_of(row),
                "lr": plain(table.values["lr"][row]),
                "layers": plain(table.values["layers"][row]),
                "optimizer": None if optimizer is None else SPACE[2].choices[int(optimizer)],
                "accuracy": plain(table.metrics["accuracy"][row]),
                "loss": plain(table.metrics["loss"][row]),
                "duration": plain(table.durations[row]),
            }
        )
    return rows


def _shares() -> list[float]:
    likely = {"Succeeded": 0.7, "EarlyStopped": 0.15}
    rest = (1 - sum(likely.values())) / (len(STATES) - len(likely))
    return [likely.get(state, rest) for state in STATES]


SEARCHES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "lr<0.01": lambda row: row["lr"] is not None and row["lr"] < 0.01,
    "LR<=0.01 adam": lambda row: row["lr"] is not None and row["lr"] <= 0.01 and row["optimizer"] == "adam",
    "lr:0.001..0.1": lambda row: row["lr"] is not None and 0.001 <= row["lr"] <= 0.1,
    "lr:0.01..": lambda row: row["lr"] is not None and row["lr"] >= 0.01,
    "optimizer=adam|sgd": lambda row: row["optimizer"] in ("adam", "sgd"),
    "optimizer!=adam": lambda row: row["optimizer"] not in (None, "adam"),
    "state:failed": lambda row: row["state"] == "Failed",
    "state!=failed layers=2": lambda row: row["state"] != "Failed" and row["layers"] == 2,
    "layers!=2": lambda row: row["layers"] not in (None, 2),
    "layers=1|3": lambda row: row["layers"] in (1, 3),
    "accuracy=none": lambda row: row["accuracy"] is None,
    "accuracy!=none": lambda row: row["accuracy"] is not None,
    "accuracy>0.5 accuracy<0.9": lambda row: row["accuracy"] is not None and 0.5 < row["accuracy"] < 0.9,
    "trial:a1": lambda row: "a1" in row["trial"],
    "duration>30": lambda row: row["duration"] is not None and row["duration"] > 30,
    'ADAM "de"': lambda row: row["optimizer"] == "adam" and "de" in row["trial"],
    '"lr<0.01"': lambda row: False,
    "lr<much": lambda row: False,
    "nothing:here": lambda row: False,
}
"""Searches, and the rows that each finds."""
