from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from katib.figures.data import FigureOptions, measure_of
from katib.figures.history import draw_edf, draw_history
from katib.figures.pareto import costs_of
from katib.figures.trials import STATES
from katib.model.wording import number_text
from tests.support.golden import Golden
from tests.support.tables import large_table, make_data, make_table, trace

NAN = math.nan


def names(figure: Any) -> list[str]:
    return [trace.name for trace in figure.data]


def draw(*args: Any, choice: FigureOptions | None = None, **kwargs: Any) -> Any:
    return draw_history(make_data(make_table(*args, **kwargs)), choice or FigureOptions())


def test_the_best_so_far_has_a_corner_at_each_improvement_and_ends_with_the_last_trial() -> None:
    best = trace(draw([5.0, 7.0, 3.0, 4.0, 1.0, 2.0]), "best so far")

    assert list(best.x) == [1, 3, 5, 6]
    assert list(best.y) == [5.0, 3.0, 1.0, 1.0]
    assert best.line.shape == "hv"


def test_a_larger_value_is_the_best_where_that_is_wanted_and_the_goal_is_a_line() -> None:
    best = trace(draw([0.2, 0.1, 0.9], metric="accuracy", maximize=True), "best so far")

    assert list(best.x) == [1, 3]
    assert list(best.y) == [0.2, 0.9]

    assert list(trace(draw([1.0, 0.5], goal=0.25), "goal 0.25").y) == [0.25, 0.25]
    assert not [name for name in names(draw([1.0, 0.5])) if name.startswith("goal")]


def test_what_violates_or_has_no_direction_is_drawn_apart_and_never_the_best() -> None:
    figure = draw([5.0, 1.0, 4.0], feasible=[True, False, True])

    assert list(trace(figure, "Succeeded").x) == [1, 3]
    assert list(trace(figure, "Succeeded, violates a constraint").x) == [2]
    assert trace(figure, "Succeeded, violates a constraint").marker.symbol == "circle-open"
    assert list(trace(figure, "best so far").y) == [5.0, 4.0]

    figure = draw([1.0, 2.0], more={"seconds": [30.0, 20.0]}, choice=FigureOptions(metric="seconds"))

    assert list(trace(figure, "Succeeded").y) == [30.0, 20.0]
    assert "best so far" not in names(figure)
    assert figure.layout.yaxis.title.text == "seconds"


@pytest.mark.parametrize(("strategy", "best"), [("mean", 4.0), ("mean(3)", 1.0), ("min", 1.0)])
def test_the_mean_of_a_trial_that_was_stopped_early_is_never_the_best(strategy: str, best: float) -> None:
    table = make_table([5.0, 1.0, 4.0], states=["Succeeded", "EarlyStopped", "Succeeded"])
    table = replace(table, strategies={table.objective.name: strategy})
    figure = draw_history(make_data(table), FigureOptions())

    assert min(trace(figure, "best so far").y) == best
    assert list(trace(figure, "EarlyStopped").y) == [1.0]
    assert list(costs_of(table, table.objectives)[:, 0]) == [5.0, math.inf if strategy == "mean" else 1.0, 4.0]


def test_trials_without_a_value_stand_at_the_bottom_each_with_the_mark_of_its_state() -> None:
    states = ["Succeeded", "Failed", "MetricsUnavailable", "Running", "EarlyStopped", "Killed"]
    figure = draw([1.0, NAN, NAN, NAN, NAN, NAN], states)

    rug = [trace for trace in figure.data if trace.yaxis == "y2"]
    assert {(t.name, tuple(t.x)) for t in rug} == {
        ("Failed", (2,)),
        ("MetricsUnavailable", (3,)),
        ("Running", (4,)),
        ("EarlyStopped without a value", (5,)),
        ("Killed", (6,)),
    }
    assert len({t.marker.symbol for t in rug}) == len(rug)


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_shown_and_not_drawn_as_one(value: float) -> None:
    figure = draw([1.0, value, 0.5])

    assert list(trace(figure, "Succeeded").x) == [1, 3]
    assert list(trace(figure, "Succeeded without a value").x) == [2]


def test_of_many_trials_a_fair_sample_is_drawn_with_the_best_and_the_note_says_so(golden: Golden) -> None:
    table = large_table(20_000)
    table.objective_values[[777, 12_345]] = [-3.0, -9.0]
    table.states[[777, 12_345]] = STATES.index("Succeeded")
    measured = table.objective_values[measure_of(table).drawn]
    figure = draw_history(make_data(table), FigureOptions())

    marks = [t for t in figure.data if t.mode == "markers" and t.yaxis != "y2"]
    drawn = np.concatenate([t.y for t in marks])
    shares = [(values > np.percentile(measured, 90)).mean() for values in (measured, drawn)]
    assert len(drawn) == 2_000
    assert {-3.0, -9.0} <= set(drawn.tolist())
    assert shares[1] == pytest.approx(shares[0], abs=0.02)
    golden(figure.layout.annotations[0].text)


def test_a_trial_that_runs_is_not_on_the_axis_of_values() -> None:
    layout = draw([1.0, NAN], ["Succeeded", "Running"]).layout

    assert layout.yaxis2.domain[1] < layout.yaxis.domain[0]
    assert layout.yaxis2.ticktext == ("no value",)
    assert layout.yaxis2.overlaying is None
    assert layout.xaxis.anchor == "y2"


def test_every_trial_may_be_better_and_an_outlier_does_not_flatten_the_rest(golden: Golden) -> None:
    best = trace(draw(np.linspace(1, 0, 50_000)), "best so far")

    assert len(best.x) <= 1_001
    assert (best.x[0], best.y[0]) == (1, 1.0)
    assert (best.x[-1], best.y[-1]) == (50_000, 0.0)

    figure = draw([*np.linspace(-1, 1, 40), 1e6])

    low, high = figure.layout.yaxis.range
    assert -1.5 < low < -1
    assert 1 < high < 2
    golden(figure.layout.annotations[0].text)


@pytest.mark.parametrize("maximize", [False, True])
def test_the_line_of_the_best_begins_within_the_axis_and_the_best_trial_has_a_star_with_its_value(
    maximize: bool,
) -> None:
    sign = -1.0 if maximize else 1.0
    figure = draw((sign * np.array([9e4, 8e4, *np.linspace(1.0, 0.1, 60)])).tolist(), maximize=maximize)
    best, star = trace(figure, "best so far"), trace(figure, "best")
    before = trace(figure, "best before")

    assert max(sign * value for value in best.y) == 1.0
    assert before.visible is False
    assert [sign * value for value in before.y] == [9e4, 8e4, 1.0]
    assert (list(star.x), list(star.text)) == ([62], [f"{sign * 0.1:g}"])
    assert figure.layout.meta["values"][0]["views"]["linear"]["beyond"] == 2


def test_a_mark_names_its_parameters_where_there_are_few() -> None:
    marks = trace(draw([1.0, 2.0]), "Succeeded")

    assert list(marks.text) == ["lr 0.001", "lr 0.1"]
    assert "%{text}" in marks.hovertemplate

    marks = trace(draw(np.linspace(1, 2, 1_500).tolist()), "Succeeded")

    assert marks.text is None
    assert "%{text}" not in marks.hovertemplate

    figure = draw(list(np.linspace(0, 1, 40)))

    assert figure.layout.yaxis.range is None
    assert "best before" not in names(figure)

    assert draw(list(np.geomspace(1e-4, 10, 30))).layout.yaxis.type == "log"


def test_names_are_no_html() -> None:
    table = make_table([1.0, 2.0], metric="<b>loss")
    table.names[0] = "<img src=x>"
    figure = draw_history(make_data(table), FigureOptions())

    assert "<img" not in figure.to_json()
    assert figure.layout.yaxis.title.text == "&lt;b&gt;loss"


def test_the_distribution_rises_by_one_trial_at_each_value() -> None:
    line = trace(draw_edf(make_data(make_table([3.0, 1.0, 2.0, 2.0])), FigureOptions()), "all trials")

    assert list(line.x) == [1, 2, 2, 3]
    assert list(line.y) == [0.25, 0.5, 0.75, 1.0]
    assert line.line.shape == "hv"

    table = make_table([1.0, 2.0], more={"seconds": [7.0, 9.0]})

    assert list(trace(draw_edf(make_data(table), FigureOptions(metric="seconds")), "all trials").x) == [7, 9]


def test_the_distribution_does_not_count_trials_without_a_value_and_the_note_says_so(golden: Golden) -> None:
    table = make_table([1.0, math.nan, 2.0, math.nan], ["Succeeded", "Failed", "Succeeded", "Running"])
    figure = draw_edf(make_data(table), FigureOptions())

    assert list(trace(figure, "all trials").y) == [0.5, 1.0]
    golden(figure.layout.annotations[0].text)


def test_the_halves_of_many_trials_show_whether_the_algorithm_learns() -> None:
    figure = draw_edf(make_data(make_table(np.linspace(1, 0, 20))), FigureOptions())

    assert min(trace(figure, "first half").x) > max(trace(figure, "second half").x)
    assert [t.name for t in draw_edf(make_data(make_table([1.0] * 19)), FigureOptions()).data] == ["all trials"]


def test_of_the_distribution_of_many_trials_the_extremes_and_the_quantiles_stay() -> None:
    table = large_table(100_000)
    line = trace(draw_edf(make_data(table), FigureOptions()), "all trials")
    values = table.objective_values[measure_of(table).drawn]

    assert len(line.x) <= 1_000
    assert line.x[0] == pytest.approx(values.min())
    assert line.x[-1] == pytest.approx(values.max())
    assert float(np.interp(np.median(values), line.x, line.y)) == pytest.approx(0.5, abs=0.002)


SEEDS = [1_234_567_890.0, 9_007_199_254_740_991.0, 1_234_567.0, 0.5]


def test_whole_numbers_keep_all_their_digits_beneath_the_pointer() -> None:
    """Python's `.16g` stands for the format of D3, which plotly.js applies to the numbers that it is given."""
    table = make_table(SEEDS)
    for figure, letter in ((draw([*SEEDS]), "y"), (draw_edf(make_data(table), FigureOptions()), "x")):
        line = figure.data[0] if letter == "x" else trace(figure, "Succeeded")
        template = figure.layout.xaxis.hoverformat if letter == "x" else line.hovertemplate

        assert ".16~g" in template
        assert sorted(f"{value:.16g}" for value in line[letter]) == sorted(number_text(value) for value in SEEDS)


def test_other_numbers_have_six_digits_beneath_the_pointer() -> None:
    assert "%{y:.6g}" in trace(draw([0.123456789, 20.0, 999_999.0]), "Succeeded").hovertemplate
