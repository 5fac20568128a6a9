"""Experiments beside each other, trials on a line of time, and the style and scales of all figures."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from katib.figures.axes import compact, time_unit, value_axis
from katib.figures.catalogue import compare, draw, figure_named
from katib.figures.comparison import MOST_EXPERIMENTS, why_incomparable
from katib.figures.data import Curve, ExperimentData, FigureOptions
from katib.figures.style import add_note, even_rows, fair_rows, new_figure, places, thinned_rows
from katib.figures.timeline import draw_timeline, nothing_has_started, running_at_once, slots_of
from katib.figures.trials import STATES, TrialTable
from katib.model.types import Experiment, ObjectMeta
from tests.support.golden import Golden
from tests.support.refusals import refused
from tests.support.tables import START, large_table, make_data, make_table, trace
from tests.support.tuning import patched

NAN = math.nan


def test_each_experiment_is_a_line_of_its_best_so_far_up_to_its_last_trial() -> None:
    first = make_data(make_table([3.0, 5.0, 1.0, 2.0]), name="first")
    figure = compare([first, make_data(make_table([4.0, 2.0]), name="second")], FigureOptions())

    assert list(trace(figure, "first").x) == [1, 3, 4]
    assert list(trace(figure, "first").y) == [3, 1, 1]
    assert list(trace(figure, "second").x) == [1, 2, 2]
    assert trace(figure, "first").line.color != trace(figure, "second").line.color
    assert trace(figure, "first").marker.symbol != trace(figure, "second").marker.symbol


def test_by_time_a_trial_counts_from_its_end_and_one_without_a_value_is_named(golden: Golden) -> None:
    quick = make_table([3.0, 1.0], started=[0.0, 0.0], ended=[50.0, 20.0])
    figure = compare([make_data(quick, name="a"), make_data(quick, name="b")], FigureOptions(by="time"))

    assert list(trace(figure, "a").x) == [20, 50]
    assert list(trace(figure, "a").y) == [1, 1]

    done, fresh = make_table([1.0, 2.0]), make_table([NAN], ["Running"])
    figure = compare([make_data(done, name="done"), make_data(fresh, name="<fresh>")], FigureOptions())

    assert [trace.name for trace in figure.data] == ["done"]
    golden(figure.layout.annotations[0].text)


def test_two_of_one_name_are_told_apart_by_their_namespaces() -> None:
    made = [make_data(make_table([value])) for value in (1.0, 2.0)]
    data = [
        replace(one, experiment=patched(one.experiment, metadata={"namespace": namespace}))
        for one, namespace in zip(made, ("left", "right"), strict=True)
    ]

    assert [trace.name for trace in compare(data, FigureOptions()).data] == ["left/demo", "right/demo"]


def test_what_cannot_be_compared_is_said(golden: Golden) -> None:
    minimized = make_data(make_table([1.0]), name="a")
    maximized = make_data(make_table([1.0], maximize=True), name="b")

    golden(why_incomparable([minimized, maximized], FigureOptions()))
    with refused("figure-impossible"):
        compare([minimized, maximized], FigureOptions())

    data = [make_data(make_table([1.0], more={"seconds": [2.0]}), name=name) for name in "ab"]

    golden(why_incomparable(data, FigureOptions(metric="seconds")))
    golden(why_incomparable(data, FigureOptions(metric="other")))


@pytest.mark.parametrize("count", [0, 1, MOST_EXPERIMENTS + 1])
def test_one_is_no_comparison_and_too_many_are_none_either(count: int, golden: Golden) -> None:
    golden(why_incomparable([make_data(make_table([1.0]))] * count, FigureOptions()))


def test_many_trials_are_drawn_in_bounded_space_on_an_axis_that_shows_the_beginning() -> None:
    data = [make_data(large_table(50_000, seed=seed), name=f"run-{seed}") for seed in range(4)]
    figure = compare(data, FigureOptions(by="time"))

    assert len(figure.to_json()) < 50_000
    assert figure.layout.xaxis.type == "log"


def test_no_two_trials_of_a_slot_run_at_once_and_there_are_as_few_slots_as_can_be() -> None:
    random = np.random.default_rng(1)
    starts = np.sort(random.random(500) * 100)
    ends = starts + random.random(500) * 5
    slots = slots_of(starts, ends)

    for slot in range(slots.max() + 1):
        own = np.flatnonzero(slots == slot)
        assert (starts[own][1:] >= ends[own][:-1]).all()
    at_once = max(int(((starts <= moment) & (ends > moment)).sum()) for moment in starts)
    assert slots.max() + 1 == at_once


def test_bars_stand_where_trials_ran_by_state(golden: Golden) -> None:
    table = make_table(
        [1.0, 2.0, NAN], ["Succeeded", "EarlyStopped", "Failed"], started=[0.0, 0.0, 60.0], ended=[60.0, 30.0, 100.0]
    )
    figure = draw_timeline(make_data(table), FigureOptions())

    done, stopped, failed = (trace(figure, state) for state in ("Succeeded", "EarlyStopped", "Failed"))
    assert (list(done.base), list(done.x), list(done.y)) == ([0], [60], [1])
    assert (list(stopped.base), list(stopped.x), list(stopped.y)) == ([0], [30], [2])
    assert (list(failed.base), list(failed.x)) == ([60], [40])
    assert len({bar.marker.pattern.shape for bar in (done, stopped, failed)}) == 3
    golden(figure.layout.xaxis.title.text)


def test_bars_are_drawn_until_now_and_wide_enough_to_see(golden: Golden) -> None:
    table = make_table([1.0, NAN], ["Succeeded", "Running"], started=[0.0, 10.0], ended=[10.0, NAN])
    data = ExperimentData(Experiment(metadata=ObjectMeta(name="demo")), table, now=START + 50)

    assert list(trace(draw_timeline(data, FigureOptions()), "Running").x) == [40]

    table = make_table([1.0, 1.0], started=[0.0, 0.0], ended=[0.0, 600.0])

    assert min(trace(draw_timeline(make_data(table), FigureOptions()), "Succeeded").x) >= 1 / 60

    table = make_table([NAN], ["Pending"], started=[NAN], ended=[NAN])

    golden(nothing_has_started(make_data(table)))


def test_of_many_trials_it_shows_how_many_ran_at_once() -> None:
    figure = draw_timeline(make_data(large_table(100_000, slots=8)), FigureOptions())

    assert sum(np.asarray(trace.y, dtype=np.float64) for trace in figure.data)[:150] == pytest.approx(8, rel=0.1)
    assert len(figure.to_json()) < 50_000
    assert "100,000 trials" in figure.layout.annotations[0].text


def test_the_time_of_all_trials_is_the_area_of_the_states() -> None:
    random = np.random.default_rng(2)
    starts = random.random(300) * 90
    ends = np.minimum(starts + random.random(300) * 20, 100.0)
    states = random.integers(0, len(STATES), 300)
    counts = running_at_once(states, starts, ends, 0.5)

    for state in range(len(STATES)):
        of_it = states == state
        assert counts[:, state].sum() * 0.5 == pytest.approx((ends - starts)[of_it].sum())


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(10, 120))
def test_thinning_keeps_the_first_the_last_and_the_extremes_in_order(values: list[float], most: int) -> None:
    column = np.array(values)
    rows = thinned_rows(column, np.arange(len(column)), most)

    assert len(rows) <= most
    assert list(rows) == sorted(set(rows))
    assert {0, len(column) - 1} <= set(rows)
    assert column[rows].min() == column.min()
    assert column[rows].max() == column.max()


def test_thinning_shows_where_most_values_are() -> None:
    column = np.random.default_rng(3).random(100_000)
    shown = column[thinned_rows(column, np.arange(100_000), 2_000)]

    assert ((shown > 0.1) & (shown < 0.9)).mean() > 0.5


@given(st.integers(0, 3_000), st.integers(1, 300), st.data())
def test_a_fair_choice_has_so_many_in_order_and_what_is_kept(count: int, most: int, data: st.DataObject) -> None:
    rows = np.arange(count)
    kept = np.array(data.draw(st.lists(st.integers(0, count - 1), max_size=most) if count else st.just([])), dtype=int)
    chosen = fair_rows(rows, most, kept)

    assert len(chosen) == min(count, most)
    assert list(chosen) == sorted(set(chosen))
    assert set(kept) <= set(chosen)


def test_fair_and_even_choices_have_the_density_of_all_and_stay() -> None:
    column = np.random.default_rng(3).random(100_000) ** 4
    shown = column[fair_rows(np.arange(100_000), 2_000)]

    assert np.percentile(shown, (10, 50, 90, 99)) == pytest.approx(np.percentile(column, (10, 50, 90, 99)), abs=0.03)

    before, after = (set(even_rows(np.arange(count), 50)) for count in (1_000, 1_300))

    assert 20 <= len(before) <= 50
    assert before <= after


@pytest.mark.parametrize(
    ("seconds", "name"), [(0.0, "seconds"), (179.0, "seconds"), (180.0, "minutes"), (3 * 3600, "hours"), (9e5, "days")]
)
def test_a_time_is_in_the_unit_of_which_it_has_three(seconds: float, name: str) -> None:
    assert time_unit(seconds).name == name


def test_numbers_keep_their_digits_where_these_would_be_seen() -> None:
    assert compact(np.array([0.1, 0.5])).dtype == np.float32
    assert compact(np.array([1e9, 1e9 + 1])).dtype == np.float64
    assert compact(np.array([1e300, 1.0])).dtype == np.float64
    assert compact(np.array([1e-300, 1.0])).dtype == np.float64
    assert compact(np.array([np.nan])).dtype == np.float32


@pytest.mark.parametrize(("maximize", "index"), [(False, 0), (True, 1)])
def test_the_better_side_is_never_cut_off(maximize: bool, index: int) -> None:
    better = 1.0 if maximize else -1.0
    values = np.concatenate([np.linspace(-1, 1, 100), [50 * better, -1e5 * better]])
    bounds = value_axis(values, maximize=maximize).layout["range"]

    assert abs(bounds[index]) >= 50
    assert abs(bounds[1 - index]) < 50


def axis_ends(name: str, table: TrialTable) -> tuple[float, float]:
    """Return the range of the axis of values of a figure."""
    rows = places(table.in_states("Succeeded"))
    curves = {str(table.names[row]): Curve(table.objective_values[[row, row]], None, np.arange(2.0)) for row in rows}
    drawn = draw(figure_named(name), make_data(table, curves=curves), FigureOptions())
    if name == "parallel":
        return tuple(drawn.data[0].dimensions[-1].range)
    axis = {"edf": "xaxis", "durations": "yaxis2"}.get(name, "yaxis")
    return tuple(drawn.layout[axis].range)


@pytest.mark.parametrize("name", ["history", "slice", "intermediate", "edf", "durations", "parallel"])
@pytest.mark.parametrize("maximize", [False, True])
def test_a_few_diverged_trials_are_beyond_the_axis_of_every_figure(name: str, maximize: bool) -> None:
    sign = -1.0 if maximize else 1.0
    values = sign * np.array([*np.linspace(0.1, 1.0, 97), *[1e5] * 3])
    low, high = sorted(sign * end for end in axis_ends(name, make_table(values.tolist(), maximize=maximize)))

    assert -0.1 < low < 0.1
    assert 1.0 < high < 1.2


@pytest.mark.parametrize("count", [16, 222, 965])
@pytest.mark.parametrize("seed", range(5))
def test_ordinary_trials_are_never_beyond_an_axis(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    ordinary = {
        "normal": random.normal(1, 0.2, count),
        "settling": np.exp(-np.arange(count) / count * 3) + random.uniform(0, 0.1, count),
        "accuracies": 1 - random.beta(1, 6, count),
    }
    for name, values in ordinary.items():
        assert (name, value_axis(values, maximize=name == "accuracies").beyond) == (name, 0)


def test_more_than_one_in_twenty_is_no_outlier_and_each_scale_has_its_own() -> None:
    assert value_axis(np.array([*np.linspace(1, 2, 90), *[50.0] * 10]), maximize=False).beyond == 0

    axis = value_axis(np.array([*np.geomspace(0.01, 1, 97), *[30.0] * 3]), maximize=False)
    assert {scale: view.beyond for scale, view in axis.views.items()} == {"linear": 3, "log": 0}
    assert axis.scale == "linear"
    assert set(value_axis(np.array([-1.0, 1.0])).views) == {"linear"}


def test_a_note_stands_in_lines_and_without_a_text_there_is_none() -> None:
    figure = new_figure(title="x")
    add_note(figure, "", "")
    assert not figure.layout.annotations

    add_note(figure, "first " * 30, "", "second")
    [note] = figure.layout.annotations
    assert note.name == "note"
    assert note.text.count("<br>") == 1
    assert note.text.endswith(". Second")
