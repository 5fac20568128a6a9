from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from katib.figures.data import Choice
from katib.figures.edf import draw_edf
from tests.support.tables import large_table, make_data, make_table


def trace(figure: Any, name: str) -> Any:
    [found] = [trace for trace in figure.data if trace.name == name]
    return found


def test_the_line_rises_by_one_trial_at_each_value() -> None:
    line = trace(draw_edf(make_data(make_table([3.0, 1.0, 2.0, 2.0])), Choice()), "all trials")

    assert list(line.x) == [1, 2, 2, 3]
    assert list(line.y) == [0.25, 0.5, 0.75, 1.0]
    assert line.line.shape == "hv"


def test_trials_without_a_value_are_not_counted_and_the_note_says_so() -> None:
    table = make_table([1.0, math.nan, 2.0, math.nan], ["Succeeded", "Failed", "Succeeded", "Running"])
    figure = draw_edf(make_data(table), Choice())

    assert list(trace(figure, "all trials").y) == [0.5, 1.0]
    assert figure.layout.annotations[0].text == "Trials that ended without a value, not counted: 1"


def test_the_halves_of_many_trials_show_whether_the_algorithm_learns() -> None:
    figure = draw_edf(make_data(make_table(np.linspace(1, 0, 20))), Choice())

    assert min(trace(figure, "first half").x) > max(trace(figure, "second half").x)
    assert [t.name for t in draw_edf(make_data(make_table([1.0] * 19)), Choice()).data] == ["all trials"]


def test_another_metric_may_be_shown() -> None:
    table = make_table([1.0, 2.0], more={"seconds": [7.0, 9.0]})

    assert list(trace(draw_edf(make_data(table), Choice(metric="seconds")), "all trials").x) == [7, 9]


def test_of_many_trials_the_extremes_and_the_quantiles_stay() -> None:
    table = large_table(100_000)
    line = trace(draw_edf(make_data(table), Choice()), "all trials")
    values = table.objective_values[table.measured]

    assert len(line.x) <= 1_000
    assert line.x[0] == pytest.approx(values.min())
    assert line.x[-1] == pytest.approx(values.max())
    assert float(np.interp(np.median(values), line.x, line.y)) == pytest.approx(0.5, abs=0.002)
