from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from katib.figures.curves import chosen
from katib.figures.data import Choice, Curve
from katib.figures.intermediate import curves_are_missing, draw_intermediate
from katib.figures.style import STATE_MARKS
from tests.support.tables import large_table, make_data, make_table, with_curves

NAN = math.nan
STATES = ["Succeeded", "EarlyStopped", "Failed"]


def curve(*values: float) -> Curve:
    places = np.arange(1.0, len(values) + 1)
    return Curve(np.array(values), places, places * 30.0)


def draw(curves: dict[str, Curve], choice: Choice | None = None) -> Any:
    return draw_intermediate(make_data(make_table([0.1, 0.5, NAN], STATES), curves=curves), choice or Choice())


def trace(figure: Any, name: str) -> Any:
    [found] = [trace for trace in figure.data if trace.name == name]
    return found


def test_each_trial_is_a_line_and_the_best_one_stands_out() -> None:
    figure = draw({"trial-1": curve(3, 2, 1), "trial-2": curve(3, 2.5)})

    best, other = trace(figure, "best trial"), trace(figure, "trial-2")
    assert list(best.x) == [1, 2, 3]
    assert list(best.y) == [3, 2, 1]
    assert best.line.width > other.line.width
    assert figure.layout.xaxis.title.text == "step"


@pytest.mark.parametrize(("state", "x", "y"), [("Succeeded", 3, 1), ("EarlyStopped", 2, 2.5)])
def test_the_mark_of_its_state_stands_at_the_end_of_a_line(state: str, x: float, y: float) -> None:
    mark = trace(draw({"trial-1": curve(3, 2, 1), "trial-2": curve(3, 2.5)}), state)

    assert (list(mark.x), list(mark.y)) == ([x], [y])
    assert mark.marker.symbol == STATE_MARKS[state]


def test_a_reading_that_is_no_number_leaves_a_gap_and_a_mark() -> None:
    figure = draw({"trial-3": curve(3, 2, NAN, math.inf)})

    assert np.isnan(trace(figure, "trial-3").y[2:]).all()
    gap = trace(figure, "not a number")
    assert (list(gap.x), list(gap.y), list(gap.customdata)) == ([3], [2], ["trial-3"])
    assert list(trace(figure, "Failed").x) == [2]


def test_the_axis_may_be_the_time() -> None:
    figure = draw({"trial-1": curve(*range(20))}, Choice(by="time"))

    assert figure.layout.xaxis.title.text == "minutes since the start of the trial"
    assert trace(figure, "best trial").x[-1] == 10


def test_the_note_says_how_many_of_the_trials_are_drawn() -> None:
    figure = draw({"trial-1": curve(1, 2)})

    assert figure.layout.annotations[0].text == "1 of 3 trials drawn; the best and the worst are among them"


def test_without_a_curve_there_is_nothing_to_draw() -> None:
    assert curves_are_missing(make_data(make_table([1.0]))) == "No trial has reported a value while it ran."


def test_a_curve_of_a_trial_that_is_gone_is_left_out() -> None:
    assert len(draw({"gone": curve(1, 2)}).data) == 0


def test_of_a_hundred_thousand_trials_a_hundred_are_drawn_in_bounded_space() -> None:
    figure = draw_intermediate(with_curves(make_data(large_table(100_000)), chosen), Choice())

    assert sum(trace.mode == "lines" for trace in figure.data) <= 100
    assert len(figure.to_json()) < 200_000
