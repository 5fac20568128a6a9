"""Groups of lines: who is in which, and their mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from katib.figures.catalogue import check_choice, compare, draw, figure_named
from katib.figures.curves import evenly
from katib.figures.data import Curve, FigureOptions
from katib.figures.groups import groups_by_tag, groups_by_value, mean_line
from katib.figures.trial_curves import CurveLook, draw_trial_curves
from katib.model.marks import Marks
from tests.support.refusals import refused
from tests.support.tables import large_table, make_data, make_table, with_curves


def line(*values: float) -> tuple[Any, Any]:
    return np.arange(1.0, len(values) + 1), np.array(values)


def means(figure: Any) -> list[str]:
    return [trace.name for trace in figure.data if trace.fill is None]


def test_members_with_one_text_are_a_group_and_numbers_are_in_order() -> None:
    assert groups_by_value(["sgd", "adam", "", "sgd"]) == {"adam": [1], "sgd": [0, 3], "none": [2]}
    assert list(groups_by_value(["16", "8", "128"])) == ["8", "16", "128"]


def test_of_many_numbers_the_thirds_are_groups() -> None:
    assert groups_by_value([str(n) for n in range(9, 0, -1)] + [""]) == {
        "1 to 3": [6, 7, 8],
        "4 to 6": [3, 4, 5],
        "7 to 9": [0, 1, 2],
        "none": [9],
    }


def test_a_member_is_in_the_group_of_each_tag_but_not_of_one_that_all_have() -> None:
    tags = [("all", "a"), ("all", "a", "b"), ("all",)]

    assert groups_by_tag(tags) == {"a": [0, 1], "b": [1], "none": [2]}
    assert groups_by_tag([("all",), ("all",)]) == {"all": [0, 1]}


def test_the_mean_of_curves_is_of_those_that_come_so_far_and_the_band_stays_within_them() -> None:
    found = mean_line([line(1.0, 3.0, 5.0), line(3.0, 5.0), line(np.nan, 7.0)], held=False)

    assert found.x.tolist() == [1, 2, 3]
    assert found.mean.tolist() == [2, 5, 5]
    assert found.low[0] == 1  # a standard deviation below would be 0.59
    assert (found.low[1], found.high[1]) == (3, 7)
    assert (found.low[2], found.high[2]) == (5, 5)


def test_the_best_so_far_is_kept_until_the_last_one_of_the_group_ends() -> None:
    found = mean_line([line(4.0, 2.0), line(2.0, 2.0, 0.0)], held=True)

    assert (found.x[-1], found.mean[-1]) == (3, 1)
    assert found.mean.tolist() == sorted(found.mean, reverse=True)


def test_the_mean_does_not_depend_on_the_points_of_others() -> None:
    straight = (np.array([0.0, 1000.0]), np.array([0.0, 1000.0]))
    dense = (np.linspace(0, 1000, 5_000), np.linspace(0, 1000, 5_000))
    found = mean_line([straight, dense], held=False)

    assert len(found.x) <= 200
    assert found.mean == pytest.approx(found.x)
    assert found.high == pytest.approx(found.low)


def test_experiments_are_compared_by_the_means_of_groups_of_any_number() -> None:
    data = [make_data(large_table(50, seed=seed), name=f"run-{seed}") for seed in range(20)]
    figure = compare(data, FigureOptions(), {"tpe": range(10), "random": range(10, 20)})

    assert means(figure) == ["tpe (10)", "random (10)"]
    with refused("figure-impossible"):
        compare(data, FigureOptions())


def test_curves_of_an_experiment_are_grouped_by_a_parameter_or_a_tag() -> None:
    trials = replace(large_table(300), marks={"trial-1": Marks(("wide",))})
    data = with_curves(make_data(trials), evenly)

    assert len(data.curves) <= 100
    figure = draw(figure_named("intermediate"), data, FigureOptions(group="lr"))
    assert [name.split()[1] for name in means(figure)] == ["to"] * 3
    assert sum(int(name.partition("(")[2][:-1]) for name in means(figure)) == len(data.curves)
    figure = draw(figure_named("intermediate"), data, FigureOptions(group="tag"))
    assert means(figure)[0] == "wide (1)"
    with refused("figure-group"):
        check_choice(data, FigureOptions(group="momentum"))


def test_trials_are_compared_by_the_means_of_groups() -> None:
    curves = {f"t{n}": Curve(np.array([1.0, 2.0]) * n, np.array([0.0, 1.0]), np.array([0.0, 1.0])) for n in (1, 2, 3)}
    figure = draw_trial_curves("demo", "loss", curves, CurveLook(), {"<a>": [0, 2], "b": [1]})

    assert means(figure) == ["&lt;a&gt; (2)", "b (1)"]
    assert figure.data[1].y.tolist() == [2, 4]


def test_a_selection_for_a_mean_is_not_of_the_best() -> None:
    trials = make_table([1.0] * 500)

    assert np.mean(evenly(trials)) == pytest.approx(250, rel=0.1)
