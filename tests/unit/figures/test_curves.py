from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np

from katib.api.metrics import ZERO_TIME, MetricLog
from katib.figures.curves import MOST_CURVES, chosen, curve_axis, curve_of, evenly_ended
from katib.figures.data import Curve, measure_of
from katib.figures.trials import STATES
from tests.support.tables import large_table, make_table

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


def test_one_trial_more_changes_hardly_any_choice_so_that_few_curves_are_read_again() -> None:
    before, after = (set(chosen(make_table(np.arange(count) % 97))) for count in (5_000, 5_001))

    assert len(after - before) <= 5


def test_where_nothing_was_stopped_no_curve_is_read_for_it() -> None:
    assert len(evenly_ended(make_table([1.0] * 500))) == 0


def test_as_many_stopped_as_complete_trials_stand_for_all() -> None:
    table = make_table([1.0] * 400, ["Succeeded", "EarlyStopped", "EarlyStopped", "EarlyStopped"] * 100)
    rows = evenly_ended(table)

    stopped = int(table.in_states("EarlyStopped")[rows].sum())
    assert 15 <= stopped <= 50
    assert 15 <= len(rows) - stopped <= 50
    assert rows[0] < 50
    assert rows[-1] > 350


def test_readings_become_numbers_steps_and_seconds_since_the_start() -> None:
    texts = ("0.5", "nan", "unavailable", "1e400")
    readings = [MetricLog(BEGIN + timedelta(seconds=3 * n), "loss", text, n * 10) for n, text in enumerate(texts, 1)]
    found = curve_of(readings, BEGIN.timestamp())

    assert found.values[0] == 0.5
    assert np.isnan(found.values[1:3]).all()
    assert found.steps is not None
    assert list(found.steps) == [10, 20, 30, 40]
    assert list(found.seconds) == [3, 6, 9, 12]


def test_readings_without_step_and_time_have_neither() -> None:
    found = curve_of([MetricLog(ZERO_TIME, "loss", "1"), MetricLog(ZERO_TIME, "loss", "2")], NAN)

    assert found.steps is None
    assert np.isnan(found.seconds).all()


def test_the_first_reading_stands_for_a_start_that_is_not_known() -> None:
    readings = [MetricLog(BEGIN + timedelta(seconds=s), "loss", "1") for s in (5, 9)]

    assert list(curve_of(readings, NAN).seconds) == [0, 4]


def test_the_axis_is_what_was_asked_for_or_the_nearest_there_is_with_the_reason() -> None:
    stepped = curve(1, 2, steps=(1, 2), seconds=(60, 600))
    timed, bare = curve(1, 2, seconds=(1, 9)), curve(1, 2)

    assert curve_axis([stepped], "step").by == "step"
    assert curve_axis([stepped], "time")[:2] == ("time", "minutes since the start of the trial")
    assert curve_axis([timed], "step").note == "the programs report no steps, so the time stands for them"
    assert curve_axis([bare], "time").by == "reading"
    assert list(curve_axis([bare], "time").places(bare)) == [1, 2]
    assert list(curve_axis([stepped], "time").places(stepped)) == [1, 10]
