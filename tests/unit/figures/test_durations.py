from __future__ import annotations

import math
from typing import Any

import pytest

from katib.figures.data import Choice
from katib.figures.durations import draw_durations, no_trial_has_ended
from tests.support.tables import large_table, make_data, make_table

NAN = math.nan


def left(figure: Any, name: str, kind: str) -> Any:
    [found] = [t for t in figure.data if t.name == name and t.type == kind and t.xaxis != "x2"]
    return found


def test_a_box_spans_the_middle_half_of_a_states_trials() -> None:
    table = make_table([1.0] * 101, started=[0.0] * 101, ended=list(range(101)))
    box = left(draw_durations(make_data(table), Choice()), "Succeeded", "box")

    values = [box[side][0] for side in ("lowerfence", "q1", "median", "q3", "upperfence")]
    assert values == pytest.approx([5, 25, 50, 75, 95])


def test_few_trials_are_marks_without_a_box() -> None:
    table = make_table([1.0, NAN], ["Succeeded", "Failed"], started=[0.0, 0.0], ended=[7.0, 3.0])
    figure = draw_durations(make_data(table), Choice())

    assert not [trace for trace in figure.data if trace.type == "box"]
    assert list(left(figure, "Succeeded", "scatter").y) == [7]
    assert list(left(figure, "Failed", "scatter").y) == [3]


def test_the_value_stands_against_the_duration() -> None:
    table = make_table([5.0, 4.0], ["Succeeded", "EarlyStopped"], started=[0.0, 0.0], ended=[40.0, 10.0])
    right = [t for t in draw_durations(make_data(table), Choice()).data if t.xaxis == "x2"]

    assert [(t.name, list(t.x), list(t.y)) for t in right] == [
        ("Succeeded", [40], [5]),
        ("EarlyStopped", [10], [4]),
    ]


def test_without_any_value_only_the_durations_are_drawn() -> None:
    table = make_table([NAN] * 2, ["Failed"] * 2, started=[0.0, 0.0], ended=[1.0, 2.0])

    assert not [t for t in draw_durations(make_data(table), Choice()).data if t.xaxis == "x2"]


def test_before_the_first_end_there_is_nothing_to_draw() -> None:
    table = make_table([NAN], ["Running"], started=[0.0], ended=[NAN])

    assert no_trial_has_ended(make_data(table)) == "No trial has run to an end yet."


def test_many_trials_are_drawn_in_bounded_space() -> None:
    assert len(draw_durations(make_data(large_table(100_000)), Choice()).to_json()) < 100_000
