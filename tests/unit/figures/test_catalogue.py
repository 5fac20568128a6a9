"""What holds for every figure of the catalogue, whoever draws it."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from katib.errors import InvalidError, NotFoundError
from katib.figures.catalogue import COMPARISON, FIGURES, FigureKind, draw, figure_named, why_impossible
from katib.figures.data import ExperimentData, FigureOptions
from katib.figures.trials import TrialTable
from tests.support.golden import Golden
from tests.support.refusals import refused
from tests.support.tables import large_table, make_data, make_table, with_curves

NAN = math.nan
HTML = "<img src=x onerror=alert(1)>"


def data_for(kind: FigureKind, count: int) -> ExperimentData:
    data = make_data(large_table(count), earlyStopping={"algorithmName": "medianstop"})
    return with_curves(data, kind.curves) if kind.curves else data


kinds = pytest.mark.parametrize("kind", FIGURES, ids=lambda kind: kind.name)


@kinds
def test_a_hundred_thousand_trials_are_drawn_in_bounded_space(kind: FigureKind) -> None:
    data = data_for(kind, 100_000)
    if not why_impossible(kind, data, FigureOptions()):
        assert len(draw(kind, data, FigureOptions()).to_json()) < 200_000


@kinds
def test_names_are_no_html(kind: FigureKind) -> None:
    table = large_table(40, metric="<b>loss")
    table.names[:] = [f"{HTML}{number}" for number in range(40)]
    data = make_data(table, earlyStopping={"algorithmName": "medianstop"}, name="demo")
    data = with_curves(data, kind.curves) if kind.curves else data
    if not why_impossible(kind, data, FigureOptions()):
        figure = draw(kind, data, FigureOptions())
        figure.update_layout(meta=None)  # for scripts: nothing of it is drawn
        text = figure.to_json()
        assert "<img" not in text
        assert "\\u003cimg" not in text
        assert "<b>loss" not in text


@kinds
@pytest.mark.parametrize(
    "table",
    [
        pytest.param(make_table([]), id="no trial"),
        pytest.param(make_table([NAN], ["Running"], started=[0.0], ended=[NAN]), id="one that runs"),
        pytest.param(make_table([NAN], ["Pending"], started=[NAN], ended=[NAN]), id="one that waits"),
        pytest.param(make_table([NAN] * 3, ["Failed"] * 3), id="all failed"),
        pytest.param(make_table([1.0]), id="one"),
        pytest.param(replace(make_table([1.0, 2.0]), values={}, parameters=()), id="without parameters"),
        pytest.param(make_table([math.inf, -math.inf, NAN]), id="nothing finite"),
        pytest.param(make_table([1.0] * 30), id="all alike"),
        pytest.param(make_table([1.0, 2.0], feasible=[False, False]), id="none feasible"),
    ],
)
def test_a_figure_of_odd_trials_is_drawn_or_says_why_it_is_not(kind: FigureKind, table: TrialTable) -> None:
    data = make_data(table)
    data = with_curves(data, kind.curves) if kind.curves else data
    if obstacle := why_impossible(kind, data, FigureOptions()):
        assert obstacle.endswith(".")
        with pytest.raises(InvalidError, match=f"figure {kind.name}: "):
            draw(kind, data, FigureOptions())
    else:
        assert draw(kind, data, FigureOptions()).to_json()


@kinds
def test_drawing_changes_nothing_of_the_trials(kind: FigureKind) -> None:
    data = data_for(kind, 300)
    before = {name: column.copy() for name, column in data.trials.metrics.items()}
    ended = data.trials.ended.copy()
    if not why_impossible(kind, data, FigureOptions()):
        draw(kind, data, FigureOptions())

    assert np.array_equal(data.trials.ended, ended, equal_nan=True)
    for name, column in before.items():
        assert np.array_equal(data.trials.metrics[name], column, equal_nan=True)


def test_each_has_a_name_of_its_own_and_chooses_what_there_is() -> None:
    every = (*FIGURES, COMPARISON)
    choices = {field.name for field in fields(FigureOptions)}

    assert len({kind.name for kind in every}) == len(every)
    assert all(set(kind.chooses) <= choices for kind in every)
    assert all(kind.tells.endswith(".") for kind in every)


@pytest.mark.parametrize(
    "choice",
    [
        FigureOptions(parameters=("lr", "beta")),
        FigureOptions(metric="accuracy"),
        FigureOptions(objectives=("x", "loss")),
        FigureOptions(by="epoch"),
    ],
    ids=["parameter", "metric", "objective", "axis"],
)
def test_a_choice_of_what_is_not_there_is_one_line(choice: FigureOptions, golden: Golden) -> None:
    with pytest.raises(InvalidError) as caught:
        draw(FIGURES[0], make_data(make_table([1.0])), choice)

    golden(caught.value)


def test_what_cannot_be_drawn_is_said_with_what_can(golden: Golden) -> None:
    data = make_data(make_table([1.0], more={"seconds": [NAN]}))

    with refused("figure-impossible"):
        draw(figure_named("history"), data, FigureOptions(metric="seconds"))

    with golden.raises(NotFoundError):
        figure_named("pie")
