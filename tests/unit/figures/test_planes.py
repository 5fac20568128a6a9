"""Slices, contour and rank: pictures of one or two parameters."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from katib.errors import InvalidError
from katib.figures.axes import metric_axis, parameter_axis
from katib.figures.catalogue import FIGURES, draw, figure_named
from katib.figures.contour import interpolated
from katib.figures.data import FigureOptions
from katib.figures.rank import rank_shares
from katib.figures.targets import shades_of, target_of
from katib.figures.trials import ParameterInfo, TrialTable
from tests.support.figure_tables import LR, MOMENTUM, OPTIMIZER, a_table, data_of, many_trials
from tests.support.golden import Golden

NAN = float("nan")
PLANES = ("slice", "contour", "rank")  # of parameters


def figure_of(name: str, table: TrialTable, *parameters: str) -> Any:
    """Return the figure."""
    return draw(figure_named(name), data_of(table), FigureOptions(parameters=parameters))


def marks_of(figure: Any) -> dict[str, list[str]]:
    """Return the names of the marked trials by what they are told apart by; of the first part."""
    traces = [trace for trace in figure.data if trace.type == "scatter" and trace.customdata is not None]
    first = {trace.name: trace for trace in reversed(traces)}
    return {
        name: [row if isinstance(row, str) else row[0] for row in trace.customdata] for name, trace in first.items()
    }


@pytest.mark.parametrize("name", PLANES)
def test_trials_are_told_apart_by_their_marks(name: str) -> None:
    table = a_table(
        {LR: [1e-4, 1e-3, 1e-2, 1e-1], MOMENTUM: [0.1, 0.2, 0.3, 0.4]},
        {"loss": [1.0, 2.0, 3.0, NAN]},
        states=["Succeeded", "EarlyStopped", "Succeeded", "Failed"],
        feasible=[True, True, False, True],
    )
    figure = figure_of(name, table)

    assert marks_of(figure) == {
        "Succeeded": ["demo-00000"],
        "EarlyStopped": ["demo-00001"],
        "infeasible": ["demo-00002"],
    }
    assert len({trace.marker.symbol for trace in figure.data if trace.name in marks_of(figure)}) == 3
    assert next(trace for trace in figure.data if trace.name == "best").x[0] == pytest.approx(1e-4)


@pytest.mark.parametrize("name", PLANES)
def test_the_size_is_bounded(name: str) -> None:
    assert len(figure_of(name, many_trials(100_000)).to_json()) < 200_000


@pytest.mark.parametrize("name", ["contour", "rank"])
def test_one_parameter_has_no_plane(name: str) -> None:
    with pytest.raises(InvalidError, match="takes two parameters"):
        figure_of(name, a_table({LR: [1e-3, 1e-2]}, {"loss": [1, 2]}))


def test_marks_of_a_choice_stand_beside_each_other_and_stay() -> None:
    draw_numbers = np.random.default_rng(4)
    optimizer, loss = draw_numbers.integers(0, 3, 40), draw_numbers.random(40)
    before = figure_of("slice", a_table({OPTIMIZER: optimizer[:30]}, {"loss": loss[:30]})).data[0].x
    after = figure_of("slice", a_table({OPTIMIZER: optimizer}, {"loss": loss})).data[0].x

    assert (np.abs(after - optimizer) < 0.3).all()
    assert len(np.unique(after)) == 40
    assert (after[:30] == before).all()


def test_a_contour_meets_the_values_of_the_trials_and_is_empty_far_from_them() -> None:
    points = np.array([[0.1, 0.1], [0.4, 0.1]])
    found = interpolated(points, np.array([1.0, 3.0]), np.array([[0.1, 0.1], [0.25, 0.1], [0.9, 0.9]]))

    assert found[:2] == pytest.approx([1.0, 2.0], abs=1e-3)
    assert np.isnan(found[2])


def test_choices_do_not_colour_each_other() -> None:
    table = a_table({OPTIMIZER: [0, 0, 1, 1], MOMENTUM: [0.1, 0.9, 0.1, 0.9]}, {"loss": [0.0, 0.0, 1.0, 1.0]})
    surface = figure_of("contour", table, "momentum", "optimizer").data[0]

    assert surface.type == "heatmap"
    assert np.nanmin(surface.z[0]) > 0.9
    assert np.nanmax(surface.z[1]) < 0.1


def test_equal_trials_have_the_same_rank_and_outlying_values_few_colours() -> None:
    target = target_of(a_table({LR: [1e-3] * 4}, {"loss": [2.0, 1.0, 2.0, 1e30]}))

    assert rank_shares(target, target.rows) == pytest.approx([0.5, 0.0, 0.5, 1.0])

    target = target_of(a_table({LR: [1e-3] * 6}, {"loss": [1.0, 2.0, 3.0, 4.0, 5.0, 1e9]}))
    shades = shades_of(target, target.rows)

    assert shades.of(np.array([1.0, 3.0])) == pytest.approx([1.0, 0.7], abs=0.15)
    assert shades.texts[0].startswith("≥")

    assert metric_axis("loss", np.array([0.1, 1e5])).scale == "log"
    assert metric_axis("loss", np.array([-0.1, 1e5])).scale == "linear"
    assert metric_axis("loss", np.array([*np.linspace(0.1, 1, 97), *[1e5] * 3])).ends == pytest.approx((0.1, 1e5))


@pytest.mark.parametrize(
    ("parameter", "values", "ticks"),
    [
        (ParameterInfo("layers", "int", low=1, high=4), [1, 4], ["1", "2", "3", "4"]),
        (ParameterInfo("batch", "discrete", log=True, low=16, high=256), [16, 64, 256], ["16", "64", "256"]),
        (ParameterInfo("steps", "int", low=10_000, high=50_000), [10_000], ["10k", "20k", "30k", "40k", "50k"]),
        (ParameterInfo("lr", "double", log=True, low=0.01, high=0.1), [0.05], ["0.01", "0.02", "0.05", "0.1"]),
        (ParameterInfo("one", "double", low=2.0, high=2.0), [2.0], ["1.8", "1.9", "2", "2.1", "2.2"]),
    ],
    ids=["whole", "listed", "thousands", "one decade", "one value"],
)
def test_ticks_are_numbers_that_people_read(parameter: ParameterInfo, values: list[float], ticks: list[str]) -> None:
    table = a_table({parameter: values}, {"loss": range(len(values))})

    assert parameter_axis(table, parameter.name, np.arange(len(values))).ticks()[1] == ticks


ZOO: dict[str, TrialTable] = {
    "one trial": a_table({LR: [1e-3], MOMENTUM: [0.5]}, {"loss": [1.0]}),
    "equal trials": a_table({LR: [1e-3] * 12, MOMENTUM: [0.5] * 12}, {"loss": [1.0] * 12}),
    "nothing feasible": a_table({LR: [1e-3, 1e-2], MOMENTUM: [0, 1]}, {"loss": [1, 2]}, feasible=[False, False]),
    "only categories": a_table(
        {OPTIMIZER: [0, 1, 2], ParameterInfo("act", "categorical", choices=("relu",)): [0] * 3}, {"loss": [1, 2, 3]}
    ),
    "never present": a_table({LR: [1e-3, 1e-2, 1e-4], MOMENTUM: [NAN] * 3}, {"loss": [1, 2, 3]}),
    "huge": a_table({LR: [1e-3, 1e-2], MOMENTUM: [0, 1]}, {"loss": [1e300, -1e300]}),
    "thirty": a_table(
        {ParameterInfo(f"<i>{i}", "double", low=0, high=1): np.random.default_rng(i).random(40) for i in range(30)},
        {"loss": range(40)},
    ),
    "unmeasured": a_table({LR: [1e-3] * 3, MOMENTUM: [0.5] * 3}, {"loss": [NAN] * 3}, states=["Running"] * 3),
    "many": many_trials(500),
}


@pytest.mark.parametrize("table", ZOO.values(), ids=ZOO.keys())
@pytest.mark.parametrize("name", ["parallel", *PLANES, "importances", "pareto", "hypervolume"])
def test_every_figure_is_drawn_or_says_why_not(name: str, table: TrialTable) -> None:
    kind = figure_named(name)
    if kind.obstacle(data_of(table)):
        with pytest.raises(InvalidError):
            figure_of(name, table)
        return
    text = figure_of(name, table).to_json()

    assert "NaN" not in text
    assert "Infinity" not in text
    assert "<i>" not in text
    assert json.loads(text)["layout"]["title"]["text"].startswith("demo: ")


def test_names_of_figures_are_told_once() -> None:
    assert len({figure.name for figure in FIGURES}) == len(FIGURES)


def test_a_scatter_plot_shows_any_two_quantities_with_a_third_as_colour() -> None:
    table = a_table(
        {LR: [1e-4, 1e-3, 1e-2, 1e-1], OPTIMIZER: [0, 1, 0, 1]},
        {"loss": [1.0, 2.0, 3.0, NAN], "size": [9.0, 8.0, 7.0, 6.0]},
    )
    figure = draw(figure_named("scatter"), data_of(table), FigureOptions(axes=("size", "loss", "lr")))
    marks = figure.data[0]

    assert (list(marks.x), list(marks.y)) == ([9, 8, 7], [1, 2, 3])
    assert list(marks.marker.color) == pytest.approx([-4, -3, -2])
    assert figure.layout.coloraxis.colorbar.ticktext[0] == "0.0001"
    assert [entry["axes"] for entry in figure.layout.meta["values"]] == [["xaxis"], ["yaxis"]]

    figure = draw(figure_named("scatter"), data_of(table), FigureOptions(axes=("lr", "loss", "optimizer")))
    assert list(figure.layout.coloraxis.colorbar.ticktext)[:2] == ["adam", "sgd"]
    assert figure.layout.xaxis.type == "log"

    empty = a_table({LR: [1e-4, 1e-3]}, {"loss": [1.0, 2.0], "size": [NAN, NAN]})
    assert draw(figure_named("scatter"), data_of(empty), FigureOptions(axes=("lr", "loss", "size"))).to_json()

    with pytest.raises(InvalidError) as caught:
        draw(figure_named("scatter"), data_of(table), FigureOptions(axes=("depth",)))
    assert caught.value.errors[0].origin == "figure-scatter-axis"


def test_a_matrix_has_a_part_for_each_pair_of_up_to_six_quantities(golden: Golden) -> None:
    data = data_of(many_trials(3_000))
    names = ("lr", "momentum", "optimizer", "loss", "duration", "trial")
    figure = draw(figure_named("matrix"), data, FigureOptions(axes=(*names, "layers")))
    parts = {(trace.xaxis, trace.yaxis) for trace in figure.data if trace.name == "best"}

    assert len(parts) == 15
    assert {meta["name"] for meta in figure.layout.meta["values"]} >= {"lr", "loss", "duration"}
    assert len(figure.to_json()) < 400_000
    golden(figure.layout.annotations[0].text)

    pair = draw(figure_named("matrix"), data, FigureOptions(axes=("momentum", "loss")))
    marks = next(trace for trace in pair.data if trace.customdata is not None)
    row = int(marks.customdata[7].rpartition("-")[2])
    assert marks.x[7] == pytest.approx(data.trials.values["momentum"][row])
    assert marks.y[7] == pytest.approx(data.trials.metrics["loss"][row])


@pytest.mark.parametrize("name", ["matrix", "rank", "slice", "contour"])
def test_the_scales_of_all_axes_of_numbers_can_be_switched(name: str) -> None:
    values = {LR: np.geomspace(1e-4, 1e-1, 20), MOMENTUM: np.linspace(0.1, 0.9, 20), OPTIMIZER: [0, 1] * 10}
    table = a_table(values, {"loss": np.linspace(1, 5, 20)})
    figure = draw(figure_named(name), data_of(table), FigureOptions(axes=("lr", "momentum", "optimizer", "loss")))
    layout = figure.layout.to_plotly_json()
    switched = [axis for meta in layout["meta"]["values"] if "log" in meta["views"] for axis in meta["axes"]]
    numbers = [key for key, axis in layout.items() if key[1:5] == "axis" and "ticktext" not in axis]

    assert sorted(switched) == sorted(numbers)
    for meta in layout["meta"]["values"]:
        assert {layout[axis].get("type", "linear") for axis in meta["axes"]} == {meta["scale"]} or not meta["views"]
