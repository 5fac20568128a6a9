from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from katib.figures.axes import compact, time_unit, value_axis
from katib.figures.style import add_note, even_rows, fair_rows, new_figure, thinned_rows


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


def test_a_fair_choice_has_the_density_of_all() -> None:
    column = np.random.default_rng(3).random(100_000) ** 4
    shown = column[fair_rows(np.arange(100_000), 2_000)]

    assert np.percentile(shown, (10, 50, 90, 99)) == pytest.approx(np.percentile(column, (10, 50, 90, 99)), abs=0.03)


def test_an_even_choice_stays_while_trials_are_added() -> None:
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


def test_a_note_stands_in_lines_and_without_a_text_there_is_none() -> None:
    figure = new_figure(title="x")
    add_note(figure, "", "")
    assert not figure.layout.annotations

    add_note(figure, "first " * 30, "", "second")
    [note] = figure.layout.annotations
    assert note.name == "note"
    assert note.text.count("<br>") == 1
    assert note.text.endswith(". Second")
