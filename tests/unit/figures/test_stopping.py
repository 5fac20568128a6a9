from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from katib.figures.curves import CURVE_POINTS, evenly_ended
from katib.figures.data import Choice, Curve
from katib.figures.stopping import draw_stopping, nothing_was_stopped, saved_work
from tests.support.tables import large_table, make_data, make_table, with_curves

NAN = math.nan


def trace(figure: Any, name: str) -> Any:
    [found] = [trace for trace in figure.data if trace.name == name]
    return found


def note(figure: Any) -> str:
    return str(figure.layout.annotations[0].text).replace("<br>", " ")


def stepped(count: int) -> Curve:
    return Curve(np.ones(count), np.arange(1.0, count + 1), np.arange(count) * 1.0)


def test_what_stopped_trials_did_not_do_is_saved() -> None:
    done = np.array([10.0, 10.0, 4.0, 2.0])
    complete = np.array([True, True, False, False])

    assert saved_work(done, ~complete, complete) == pytest.approx(14 / 40)


def test_trials_that_are_not_known_count_as_the_others_of_their_kind() -> None:
    done = np.array([10.0, NAN, 4.0, NAN, NAN])
    complete = np.array([True, True, False, False, False])

    assert saved_work(done, ~complete, complete) == pytest.approx(18 / 50)


def test_the_last_step_of_each_trial_is_drawn_with_the_usual_length() -> None:
    table = make_table([1.0, 2.0, 3.0], ["Succeeded", "EarlyStopped", "Succeeded"])
    curves = {"trial-1": stepped(20), "trial-2": stepped(5), "trial-3": stepped(20)}
    figure = draw_stopping(make_data(table, curves=curves), Choice())

    assert (list(trace(figure, "EarlyStopped").x), list(trace(figure, "EarlyStopped").y)) == ([2], [5])
    assert list(trace(figure, "Succeeded").y) == [20, 20]
    assert list(trace(figure, "median of the complete ones").y) == [20, 20]
    assert note(figure) == "1 of 3 trials were stopped early and about 25% of the steps saved"


def test_without_steps_readings_are_counted() -> None:
    table = make_table([1.0, 2.0], ["Succeeded", "EarlyStopped"])
    curves = {f"trial-{n}": Curve(np.ones(count), None, np.full(count, NAN)) for n, count in ((1, 20), (2, 5))}
    figure = draw_stopping(make_data(table, curves=curves), Choice())

    assert figure.layout.yaxis.title.text == "readings"
    assert note(figure) == "1 of 2 trials were stopped early and about 38% of the readings saved"


def test_readings_that_may_have_been_left_out_are_not_counted() -> None:
    table = make_table([1.0, 2.0], ["Succeeded", "EarlyStopped"], started=[0.0, 0.0], ended=[100.0, 25.0])
    long = Curve(np.ones(CURVE_POINTS), None, np.full(CURVE_POINTS, NAN))
    figure = draw_stopping(make_data(table, curves={"trial-1": long, "trial-2": long}), Choice())

    assert "of the time saved" in note(figure)


def test_without_curves_the_time_stands_for_steps() -> None:
    table = make_table([1.0, 2.0], ["Succeeded", "EarlyStopped"], started=[0.0, 0.0], ended=[100.0, 25.0])
    figure = draw_stopping(make_data(table), Choice())

    assert list(trace(figure, "EarlyStopped").y) == [25]
    assert note(figure) == (
        "1 of 2 trials were stopped early and about 38% of the time saved. "
        "The programs report no steps, so the time stands for them"
    )


def test_when_none_ran_to_its_end_nobody_knows_what_was_saved() -> None:
    figure = draw_stopping(make_data(make_table([1.0], ["EarlyStopped"])), Choice(by="time"))

    assert "none has run to its end, so the saving is not known" in note(figure)


def test_it_says_why_there_is_nothing_to_show() -> None:
    table = make_table([1.0])

    assert nothing_was_stopped(make_data(table)) == "The experiment has no early stopping."
    assert nothing_was_stopped(make_data(table, earlyStopping={})) == "The experiment has no early stopping."
    stopping = {"algorithmName": "medianstop"}
    assert nothing_was_stopped(make_data(table, earlyStopping=stopping)) == "No trial has been stopped early yet."


def test_of_many_trials_some_stand_for_all() -> None:
    figure = draw_stopping(with_curves(make_data(large_table(100_000)), evenly_ended), Choice())

    assert len(figure.to_json()) < 50_000
    assert "trials drawn" in note(figure)
