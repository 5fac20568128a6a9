"""Curves of trials: all of an experiment, intermediate values, where they were stopped, and how long they took."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from katib.figures.curves import CURVE_POINTS, MOST_CURVES, chosen, curve_axis, curve_of, evenly_ended
from katib.figures.data import Curve, FigureOptions, measure_of
from katib.figures.durations import draw_durations, no_trial_has_ended
from katib.figures.intermediate import curves_are_missing, draw_intermediate
from katib.figures.stopping import draw_stopping, nothing_was_stopped, saved_work
from katib.figures.style import STATE_MARKS
from katib.figures.trials import STATES
from katib.model.metrics import ZERO_TIME, MetricLog
from tests.support.golden import Golden
from tests.support.tables import large_table, make_data, make_table, trace, with_curves

NAN = math.nan
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


def curve(*values: float, steps: tuple[float, ...] = (), seconds: tuple[float, ...] = ()) -> Curve:
    count = len(values)
    return Curve(
        np.array(values), np.array(steps) if steps else None, np.array(seconds or [NAN] * count, dtype=np.float64)
    )


def test_of_few_trials_every_one_with_a_value_or_that_runs_is_chosen() -> None:
    table = make_table([1.0, NAN, 3.0, NAN], ["Succeeded", "Running", "EarlyStopped", "Failed"])

    assert list(chosen(table)) == [0, 1, 2, 3]


def test_of_many_the_best_the_worst_the_running_and_the_newest_of_each_kind_are_chosen() -> None:
    table = large_table(10_000)
    table.states[-3:] = STATES.index("Running")
    rows = chosen(table)

    costs = measure_of(table).costs
    ranked = np.argsort(costs, kind="stable")
    ranked = ranked[np.isfinite(costs[ranked])]
    assert len(rows) <= MOST_CURVES
    assert set(ranked[:20]) <= set(rows)
    assert set(ranked[-10:]) <= set(rows)
    assert {9_997, 9_998, 9_999} <= set(rows)
    assert set(np.flatnonzero(table.in_states("EarlyStopped"))[-20:]) <= set(rows)
    assert set(np.flatnonzero(table.in_states("Failed"))[-2:]) <= set(rows)
    assert list(rows) == sorted(set(rows))


def test_one_trial_more_changes_hardly_any_choice() -> None:
    before, after = (set(chosen(make_table(np.arange(count) % 97))) for count in (5_000, 5_001))

    assert len(after - before) <= 5

    assert len(evenly_ended(make_table([1.0] * 500))) == 0


def test_as_many_stopped_as_complete_trials_stand_for_all() -> None:
    table = make_table([1.0] * 400, ["Succeeded", "EarlyStopped", "EarlyStopped", "EarlyStopped"] * 100)
    rows = evenly_ended(table)

    stopped = int(table.in_states("EarlyStopped")[rows].sum())
    assert 15 <= stopped <= 50
    assert 15 <= len(rows) - stopped <= 50
    assert rows[0] < 50
    assert rows[-1] > 350


def test_readings_become_numbers_steps_and_seconds_or_neither() -> None:
    texts = ("0.5", "nan", "unavailable", "1e400")
    readings = [MetricLog(BEGIN + timedelta(seconds=3 * n), "loss", text, n * 10) for n, text in enumerate(texts, 1)]
    found = curve_of(readings, BEGIN.timestamp())

    assert found.values[0] == 0.5
    assert np.isnan(found.values[1:3]).all()
    assert found.steps is not None
    assert list(found.steps) == [10, 20, 30, 40]
    assert list(found.seconds) == [3, 6, 9, 12]

    found = curve_of([MetricLog(ZERO_TIME, "loss", "1"), MetricLog(ZERO_TIME, "loss", "2")], NAN)

    assert found.steps is None
    assert np.isnan(found.seconds).all()

    readings = [MetricLog(BEGIN + timedelta(seconds=s), "loss", "1") for s in (5, 9)]

    assert list(curve_of(readings, NAN).seconds) == [0, 4]


def test_the_axis_is_what_was_asked_for_or_the_nearest_there_is_with_the_reason(golden: Golden) -> None:
    stepped = curve(1, 2, steps=(1, 2), seconds=(60, 600))
    timed, bare = curve(1, 2, seconds=(1, 9)), curve(1, 2)

    assert curve_axis([stepped], "step").by == "step"
    golden(curve_axis([stepped], "time")[:2])
    golden(curve_axis([timed], "step").note)
    assert curve_axis([bare], "time").by == "reading"
    assert list(curve_axis([bare], "time").places(bare)) == [1, 2]
    assert list(curve_axis([stepped], "time").places(stepped)) == [1, 10]


WITH_CURVES = ["Succeeded", "EarlyStopped", "Failed"]


def recorded(*values: float) -> Curve:
    places = np.arange(1.0, len(values) + 1)
    return Curve(np.array(values), places, places * 30.0)


def draw(curves: dict[str, Curve], choice: FigureOptions | None = None) -> Any:
    return draw_intermediate(
        make_data(make_table([0.1, 0.5, NAN], WITH_CURVES), curves=curves), choice or FigureOptions()
    )


def test_each_trial_is_a_line_and_the_best_one_stands_out() -> None:
    figure = draw({"trial-1": recorded(3, 2, 1), "trial-2": recorded(3, 2.5)})

    best, other = trace(figure, "best trial"), trace(figure, "trial-2")
    assert list(best.x) == [1, 2, 3]
    assert list(best.y) == [3, 2, 1]
    assert best.line.width > other.line.width
    assert figure.layout.xaxis.title.text == "step"


@pytest.mark.parametrize(("state", "x", "y"), [("Succeeded", 3, 1), ("EarlyStopped", 2, 2.5)])
def test_the_mark_of_its_state_stands_at_the_end_of_a_line(state: str, x: float, y: float) -> None:
    mark = trace(draw({"trial-1": recorded(3, 2, 1), "trial-2": recorded(3, 2.5)}), state)

    assert (list(mark.x), list(mark.y)) == ([x], [y])
    assert mark.marker.symbol == STATE_MARKS[state]


def test_a_reading_that_is_no_number_leaves_a_gap_at_steps_or_times(golden: Golden) -> None:
    figure = draw({"trial-3": recorded(3, 2, NAN, math.inf)})

    assert np.isnan(trace(figure, "trial-3").y[2:]).all()
    gap = trace(figure, "not a number")
    assert (list(gap.x), list(gap.y), list(gap.customdata)) == ([3], [2], ["trial-3"])
    assert list(trace(figure, "Failed").x) == [2]

    figure = draw({"trial-1": recorded(*range(20))}, FigureOptions(by="time"))

    golden(figure.layout.xaxis.title.text)
    assert trace(figure, "best trial").x[-1] == 10


def test_without_a_curve_there_is_nothing_to_draw(golden: Golden) -> None:
    golden(curves_are_missing(make_data(make_table([1.0]))))

    assert len(draw({"gone": recorded(1, 2)}).data) == 0

    golden(draw({"trial-1": recorded(1, 2)}).layout.annotations[0].text)


def test_of_a_hundred_thousand_trials_a_hundred_are_drawn_in_bounded_space() -> None:
    figure = draw_intermediate(with_curves(make_data(large_table(100_000)), chosen), FigureOptions())

    assert sum(trace.mode == "lines" for trace in figure.data) <= 100
    assert len(figure.to_json()) < 200_000


def note(figure: Any) -> str:
    return str(figure.layout.annotations[0].text).replace("<br>", " ")


def stepped(count: int) -> Curve:
    return Curve(np.ones(count), np.arange(1.0, count + 1), np.arange(count) * 1.0)


def test_what_stopped_trials_did_not_do_is_saved(golden: Golden) -> None:
    done = np.array([10.0, 10.0, 4.0, 2.0])
    complete = np.array([True, True, False, False])

    assert saved_work(done, ~complete, complete) == pytest.approx(14 / 40)

    done = np.array([10.0, NAN, 4.0, NAN, NAN])
    complete = np.array([True, True, False, False, False])

    assert saved_work(done, ~complete, complete) == pytest.approx(18 / 50)

    figure = draw_stopping(make_data(make_table([1.0], ["EarlyStopped"])), FigureOptions(by="time"))

    golden(note(figure))


def test_the_last_step_of_each_trial_is_drawn_with_the_usual_length(golden: Golden) -> None:
    table = make_table([1.0, 2.0, 3.0], ["Succeeded", "EarlyStopped", "Succeeded"])
    curves = {"trial-1": stepped(20), "trial-2": stepped(5), "trial-3": stepped(20)}
    figure = draw_stopping(make_data(table, curves=curves), FigureOptions())

    assert (list(trace(figure, "EarlyStopped").x), list(trace(figure, "EarlyStopped").y)) == ([2], [5])
    assert list(trace(figure, "Succeeded").y) == [20, 20]
    assert list(trace(figure, "median of the complete ones").y) == [20, 20]
    golden(note(figure))


def test_steps_or_times_are_counted_as_far_as_they_are_known(golden: Golden) -> None:
    table = make_table([1.0, 2.0], ["Succeeded", "EarlyStopped"])
    curves = {f"trial-{n}": Curve(np.ones(count), None, np.full(count, NAN)) for n, count in ((1, 20), (2, 5))}
    figure = draw_stopping(make_data(table, curves=curves), FigureOptions())

    assert figure.layout.yaxis.title.text == "readings"
    golden(note(figure))

    table = make_table([1.0, 2.0], ["Succeeded", "EarlyStopped"], started=[0.0, 0.0], ended=[100.0, 25.0])
    long = Curve(np.ones(CURVE_POINTS), None, np.full(CURVE_POINTS, NAN))
    figure = draw_stopping(make_data(table, curves={"trial-1": long, "trial-2": long}), FigureOptions())

    assert "of the time saved" in note(figure)


def test_without_curves_the_time_stands_for_steps(golden: Golden) -> None:
    table = make_table([1.0, 2.0], ["Succeeded", "EarlyStopped"], started=[0.0, 0.0], ended=[100.0, 25.0])
    figure = draw_stopping(make_data(table), FigureOptions())

    assert list(trace(figure, "EarlyStopped").y) == [25]
    golden(note(figure))


def test_it_says_why_there_is_nothing_to_show(golden: Golden) -> None:
    table = make_table([1.0])

    golden(nothing_was_stopped(make_data(table)))
    golden(nothing_was_stopped(make_data(table, earlyStopping={})))
    golden(nothing_was_stopped(make_data(table, earlyStopping={"algorithmName": "medianstop"})))


def test_of_many_trials_some_stand_for_all() -> None:
    figure = draw_stopping(with_curves(make_data(large_table(100_000)), evenly_ended), FigureOptions())

    assert len(figure.to_json()) < 50_000
    assert "trials drawn" in note(figure)


def left(figure: Any, name: str, kind: str) -> Any:
    [found] = [t for t in figure.data if t.name == name and t.type == kind and t.xaxis != "x2"]
    return found


def test_a_box_spans_the_middle_half_of_a_states_trials() -> None:
    table = make_table([1.0] * 101, started=[0.0] * 101, ended=list(range(101)))
    box = left(draw_durations(make_data(table), FigureOptions()), "Succeeded", "box")

    values = [box[side][0] for side in ("lowerfence", "q1", "median", "q3", "upperfence")]
    assert values == pytest.approx([5, 25, 50, 75, 95])


def test_few_trials_are_marks_without_a_box() -> None:
    table = make_table([1.0, NAN], ["Succeeded", "Failed"], started=[0.0, 0.0], ended=[7.0, 3.0])
    figure = draw_durations(make_data(table), FigureOptions())

    assert not [trace for trace in figure.data if trace.type == "box"]
    assert list(left(figure, "Succeeded", "scatter").y) == [7]
    assert list(left(figure, "Failed", "scatter").y) == [3]


def test_the_value_stands_against_the_duration(golden: Golden) -> None:
    table = make_table([5.0, 4.0], ["Succeeded", "EarlyStopped"], started=[0.0, 0.0], ended=[40.0, 10.0])
    right = [t for t in draw_durations(make_data(table), FigureOptions()).data if t.xaxis == "x2"]

    assert [(t.name, list(t.x), list(t.y)) for t in right] == [("Succeeded", [40], [5]), ("EarlyStopped", [10], [4])]

    table = make_table([NAN] * 2, ["Failed"] * 2, started=[0.0, 0.0], ended=[1.0, 2.0])

    assert not [t for t in draw_durations(make_data(table), FigureOptions()).data if t.xaxis == "x2"]

    table = make_table([NAN], ["Running"], started=[0.0], ended=[NAN])

    golden(no_trial_has_ended(make_data(table)))

    assert len(draw_durations(make_data(large_table(100_000)), FigureOptions()).to_json()) < 100_000
