from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from katib.errors import InvalidError
from katib.figures.catalogue import compare
from katib.figures.comparison import MOST_EXPERIMENTS, why_incomparable
from katib.figures.data import Choice
from tests.support.tables import large_table, make_data, make_table
from tests.support.tuning import patched

NAN = math.nan


def trace(figure: Any, name: str) -> Any:
    [found] = [trace for trace in figure.data if trace.name == name]
    return found


def test_each_experiment_is_a_line_of_its_best_so_far_up_to_its_last_trial() -> None:
    first = make_data(make_table([3.0, 5.0, 1.0, 2.0]), name="first")
    second = make_data(make_table([4.0, 2.0]), name="second")
    figure = compare([first, second], Choice())

    assert list(trace(figure, "first").x) == [1, 3, 4]
    assert list(trace(figure, "first").y) == [3, 1, 1]
    assert list(trace(figure, "second").x) == [1, 2, 2]
    assert trace(figure, "first").line.color != trace(figure, "second").line.color
    assert trace(figure, "first").marker.symbol != trace(figure, "second").marker.symbol


def test_by_time_a_trial_counts_from_its_end() -> None:
    quick = make_table([3.0, 1.0], started=[0.0, 0.0], ended=[50.0, 20.0])
    figure = compare([make_data(quick, name="a"), make_data(quick, name="b")], Choice(by="time"))

    assert list(trace(figure, "a").x) == [20, 50]
    assert list(trace(figure, "a").y) == [1, 1]


def test_one_without_a_value_is_named() -> None:
    done, fresh = make_table([1.0, 2.0]), make_table([NAN], ["Running"])
    figure = compare([make_data(done, name="done"), make_data(fresh, name="<fresh>")], Choice())

    assert [trace.name for trace in figure.data] == ["done"]
    assert figure.layout.annotations[0].text == "Without a value so far: &lt;fresh&gt;"


def test_two_of_one_name_are_told_apart_by_their_namespaces() -> None:
    made = [make_data(make_table([value])) for value in (1.0, 2.0)]
    data = [
        replace(one, experiment=patched(one.experiment, metadata={"namespace": namespace}))
        for one, namespace in zip(made, ("left", "right"), strict=True)
    ]

    assert [trace.name for trace in compare(data, Choice()).data] == ["left/demo", "right/demo"]


def test_different_objectives_cannot_be_compared() -> None:
    minimized = make_data(make_table([1.0]), name="a")
    maximized = make_data(make_table([1.0], maximize=True), name="b")

    assert why_incomparable([minimized, maximized], Choice()) == "a minimizes loss, but b maximizes loss."
    with pytest.raises(InvalidError, match="figure comparison: a minimizes loss, but b maximizes loss; choose"):
        compare([minimized, maximized], Choice())


@pytest.mark.parametrize("count", [0, 1, MOST_EXPERIMENTS + 1])
def test_one_is_no_comparison_and_too_many_are_none_either(count: int) -> None:
    data = make_data(make_table([1.0]))

    assert why_incomparable([data] * count, Choice()) == f"A comparison is of 2 to {MOST_EXPERIMENTS} experiments."


def test_a_metric_has_to_be_an_objective_of_all() -> None:
    data = [make_data(make_table([1.0], more={"seconds": [2.0]}), name=name) for name in "ab"]

    assert "a does not optimize seconds" in why_incomparable(data, Choice(metric="seconds"))
    assert why_incomparable(data, Choice(metric="other")) == 'a has no metric "other".'


def test_many_trials_are_drawn_in_bounded_space_on_an_axis_that_shows_the_beginning() -> None:
    data = [make_data(large_table(50_000, seed=seed), name=f"run-{seed}") for seed in range(4)]
    figure = compare(data, Choice(by="time"))

    assert len(figure.to_json()) < 50_000
    assert figure.layout.xaxis.type == "log"
