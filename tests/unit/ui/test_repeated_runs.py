"""The columns of trials that are repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import structs

from katib.doors.ui.trial_columns import MEAN, RUNS, cells_of, columns_of, first_columns, order_of
from katib.figures.data import measure_of
from katib.figures.trials import TrialTable
from katib.model.features.repeats.feature import REPEATS
from katib.model.features.repeats.runs import FIRST_RUN_LABEL
from katib.model.types import Trial
from tests.support.tuning import condition, make_experiment, make_trial


def a_run(name: str, first: str, loss: str | None, **annotations: Any) -> Trial:
    made = make_trial(name, condition("Failed" if loss is None else "Succeeded"), loss=loss, x="1")
    labels = {**made.metadata.labels, **({} if first == name else {FIRST_RUN_LABEL: first})}
    return structs.replace(made, metadata=structs.replace(made.metadata, labels=labels, annotations=annotations))


def test_each_trial_has_the_mean_of_its_configuration_and_can_be_sorted_by_it() -> None:
    trials = [
        a_run(name, first, loss, **REPEATS.write(3))
        for name, first, loss in (
            ("b", "b", "0.5"),
            ("a", "a", "1"),
            ("a-2", "a", "2"),
            ("a-3", "a", None),
            ("c", "c", None),
        )
    ]
    experiment = make_experiment()
    metadata = structs.replace(experiment.metadata, annotations=REPEATS.write(2))
    table = TrialTable.of(structs.replace(experiment, metadata=metadata), trials)
    columns = columns_of(table)
    rows = np.arange(len(table))
    shown = {
        name: dict(zip(table.names, (cell.shown for cell in cells_of(table, columns[name], rows)), strict=True))
        for name in (MEAN, RUNS)
    }

    best = measure_of(table).best
    assert best is not None
    assert (table.names[best], measure_of(table).values[best]) == ("a", 1.5)
    assert {MEAN, RUNS} <= set(first_columns(columns))
    assert shown[MEAN] == {"b": "0.5", "a": "1.5", "a-2": "1.5", "a-3": "1.5", "c": ""}
    assert shown[RUNS] == {"b": "1", "a": "2", "a-2": "2", "a-3": "2", "c": ""}
    assert np.nanargmin(order_of(table, columns[MEAN], rows)) == list(table.names).index("b")


def test_without_repeats_there_are_no_such_columns() -> None:
    table = TrialTable.of(make_experiment(), [a_run("a", "a", "1")])

    assert not {MEAN, RUNS} & set(columns_of(table))
