"""Parallel coordinates: which lines are drawn, and what a brush means."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from katib.figures.catalogue import draw, figure_named
from katib.figures.data import FigureOptions, measure_of
from katib.figures.parallel import lines_of
from katib.figures.trials import Objective, ParameterInfo, TrialTable
from tests.support.figure_tables import LAYERS, LR, MOMENTUM, OPTIMIZER, a_table, data_of, many_trials
from tests.support.golden import Golden

NAN = float("nan")
LARGEST_JSON = 250_000


def parallel(table: TrialTable, *parameters: str) -> Any:
    """Return the figure as Plotly's objects."""
    return draw(figure_named("parallel"), data_of(table), FigureOptions(parameters=parameters))


def axis_of(figure: Any, name: str) -> tuple[dict[str, Any], Any]:
    """Return what the figure says of an axis, and its dimension."""
    place = [axis["name"] for axis in figure.layout.meta["axes"]].index(name)
    return figure.layout.meta["axes"][place], figure.data[0].dimensions[place]


def true_range(axis: dict[str, Any], low: float, high: float) -> tuple[float, float] | list[str]:
    """Return what a brush from one place to another selects, as a page works it out from what the figure says."""
    if axis["scale"] == "categorical":
        return [text for place, text in enumerate(axis["choices"]) if low <= place <= high]
    return (10.0**low, 10.0**high) if axis["scale"] == "log" else (low, high)


def test_the_best_line_is_last_also_where_larger_is_better() -> None:
    figure = parallel(a_table({LR: [1e-4, 1e-3, 1e-2]}, {"loss": [0.5, 0.1, 0.9]}))

    assert list(figure.layout.meta["trials"]) == ["demo-00002", "demo-00000", "demo-00001"]
    assert list(figure.data[0].line.color) == pytest.approx([0.0, 0.5, 1.0])
    assert figure.layout.meta["best"] == "demo-00001"

    table = a_table({LR: [1e-4, 1e-3, 1e-2]}, {"acc": [0.5, 0.1, 0.9]}, objectives=[Objective("acc", maximize=True)])

    assert list(parallel(table).layout.meta["trials"]) == ["demo-00001", "demo-00000", "demo-00002"]


def test_an_axis_of_choices_or_magnitudes_has_its_places() -> None:
    axis, _ = axis_of(parallel(a_table({OPTIMIZER: [0, 1, 2]}, {"loss": [1.0, 2.0, 3.0]})), "optimizer")

    assert true_range(axis, -0.4, 1.4) == ["adam", "sgd"]

    axis, dimension = axis_of(parallel(a_table({LR: [1e-4, 1e-3]}, {"loss": [1.0, 2.0]})), "lr")

    assert axis["scale"] == "log"
    assert sorted(dimension.values) == pytest.approx([-4, -3])
    assert [text for text in dimension.ticktext if text] == ["1e-05", "0.0001", "0.001", "0.01", "0.1"]


@pytest.mark.parametrize(
    ("name", "value"), [("lr", 2.5e-4), ("momentum", 0.73), ("layers", 5.0)], ids=["log", "double", "int"]
)
def test_a_brush_around_a_line_means_a_range_around_its_value(name: str, value: float) -> None:
    values = {LR: [1e-4, 2.5e-4], MOMENTUM: [0.1, 0.73], LAYERS: [2, 5]}
    axis, dimension = axis_of(parallel(a_table(values, {"loss": [1.0, 0.5]})), name)
    place = float(dimension.values[-1])
    low, high = true_range(axis, place - 1e-6, place + 1e-6)

    assert low < value < high
    assert high - low == pytest.approx(0, abs=1e-4)


def test_trials_without_a_conditional_parameter_have_a_place_of_their_own() -> None:
    figure = parallel(a_table({MOMENTUM: [0.0, NAN], OPTIMIZER: [1, NAN]}, {"loss": [1.0, 2.0]}))

    for name in ("momentum", "optimizer"):
        axis, dimension = axis_of(figure, name)
        absent, present = dimension.values
        assert absent == pytest.approx(axis["absent"])
        assert absent < present
        assert dimension.ticktext[list(dimension.tickvals).index(axis["absent"])] == "absent"


def test_trials_without_a_value_are_not_drawn_and_are_counted(golden: Golden) -> None:
    states = ["Succeeded", "Failed", "Running", "Succeeded"]
    figure = parallel(a_table({LR: [1e-3] * 4}, {"loss": [1.0, NAN, NAN, NAN]}, states=states))

    assert list(figure.layout.meta["trials"]) == ["demo-00000"]
    golden(figure.layout.annotations[0].text)


def test_constraints_have_an_axis_where_trials_differ_in_them_and_states_have_none() -> None:
    table = a_table(
        {LR: [1e-4, 1e-3, 1e-2]},
        {"loss": [1.0, 0.1, 0.5]},
        states=["Succeeded", "EarlyStopped", "Succeeded"],
        feasible=[True, True, False],
    )
    figure = parallel(table)

    assert [axis["name"] for axis in figure.layout.meta["axes"]] == ["feasible", "lr", "loss"]
    assert list(figure.layout.meta["rows"]) == [2, 0, 1]
    assert list(figure.layout.meta["trials"]) == ["demo-00002", "demo-00000", "demo-00001"]
    assert figure.data[0].line.color[0] == 0
    assert figure.layout.coloraxis.colorbar.ticktext[0] == "infeasible"


def test_the_first_of_several_objectives_is_the_last_axis() -> None:
    objectives = [Objective("loss", maximize=False), Objective("seconds", maximize=False)]
    figure = parallel(a_table({LR: [1e-4, 1e-3]}, {"loss": [1, 2], "seconds": [3, 4]}, objectives=objectives))

    assert [axis["name"] for axis in figure.layout.meta["axes"]] == ["lr", "seconds", "loss"]


def test_of_many_trials_the_best_and_the_extremes_are_drawn() -> None:
    table = many_trials(100_000)
    rows = set(lines_of(table, 1_500).tolist())
    measured = np.flatnonzero(measure_of(table).drawn)
    feasible = measured[table.feasible[measured]]

    assert len(rows) == 1_500
    assert set(feasible[np.argsort(table.objective_values[feasible])][:300].tolist()) <= rows
    for column in table.values.values():
        assert np.nanmin(column[sorted(rows)]) == np.nanmin(column[measured])
        assert np.nanmax(column[sorted(rows)]) == np.nanmax(column[measured])


def test_lines_stay_while_trials_are_added() -> None:
    before = set(lines_of(many_trials(20_000), 1_500).tolist())
    table = many_trials(20_000)
    grown = a_table(
        {p: np.append(table.values[p.name], [1e-3] * 100) for p in table.parameters},
        {"loss": np.append(table.metrics["loss"], [3.0] * 100)},
        states=[table.state_of(row) for row in range(len(table))] + ["Succeeded"] * 100,
        feasible=[*table.feasible, *[True] * 100],
    )

    assert len(before - set(lines_of(grown, 1_500).tolist())) <= 20


@pytest.mark.parametrize("width", [4, 30, 60])
def test_the_size_is_bounded_whatever_the_trials_and_parameters(width: int) -> None:
    draw_numbers = np.random.default_rng(3)
    values = {ParameterInfo(f"p{i:02d}", "double", low=0, high=1): draw_numbers.random(20_000) for i in range(width)}
    figure = parallel(a_table(values, {"loss": draw_numbers.random(20_000)}))

    assert len(figure.to_json()) < LARGEST_JSON
    assert f"of {20_000:,} measured trials drawn" in figure.layout.annotations[0].text.replace("<br>", " ")


def test_of_many_parameters_those_are_shown_that_say_most() -> None:
    draw_numbers = np.random.default_rng(3)
    values = {ParameterInfo(f"p{i:02d}", "double", low=0, high=1): draw_numbers.random(400) for i in range(30)}
    loss = values[ParameterInfo("p07", "double", low=0, high=1)] + values[ParameterInfo("p28", "double", low=0, high=1)]
    names = [axis["name"] for axis in parallel(a_table(values, {"loss": loss})).layout.meta["axes"]]

    assert {"p07", "p28"} <= set(names)
    assert len(names) == 21


def test_long_texts_of_architectures_are_shortened_on_the_axis() -> None:
    texts = tuple(f"[[{i}], {'[1, 0], ' * 60}]" for i in range(300))
    architecture = ParameterInfo("architecture", "categorical", choices=texts)
    figure = parallel(a_table({architecture: range(300)}, {"loss": range(300)}))
    axis, dimension = axis_of(figure, "architecture")

    assert max(map(len, dimension.ticktext)) <= 24
    assert len(dimension.ticktext) <= 15
    assert "choices" not in axis
    assert len(figure.to_json()) < LARGEST_JSON


def test_names_are_never_html() -> None:
    evil = ParameterInfo("<img src=x onerror=alert(1)>", "double", low=0, high=1)
    figure = parallel(a_table({evil: [0.1, 0.2]}, {"loss": [1, 2]}))

    assert figure.data[0].dimensions[0].label.startswith("&lt;img")
    assert "NaN" not in json.dumps(json.loads(figure.to_json()))
