"""The Pareto front and its hypervolume."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from katib.errors import InvalidError, NotFoundError
from katib.figures import reading
from katib.figures.catalogue import draw, figure_named
from katib.figures.data import FigureOptions
from katib.figures.pareto import front_rows, volumes_of
from katib.figures.reading import CurveCache, read_experiment, with_curves
from katib.figures.trials import Objective, TrialTable
from katib.model import pareto
from katib.model.metrics import MetricLog
from katib.service.tuning import trial_pages
from tests.support.figure_tables import LR, a_table, data_of
from tests.support.golden import Golden
from tests.support.refusals import refused
from tests.support.tuning import START, MemoryTuningService, condition, make_experiment, make_trial

LOSS, SECONDS, SIZE, HEAT = (Objective(name, maximize=False) for name in ("loss", "seconds", "size", "heat"))
ACCURACY = Objective("accuracy", maximize=True)


def random_trials(count: int, objectives: tuple[Objective, ...], seed: int = 1) -> TrialTable:
    """Return trials with random values of some objectives, a few of them infeasible."""
    draw_numbers = np.random.default_rng(seed)
    metrics = {objective.name: draw_numbers.random(count) for objective in objectives}
    feasible = list(draw_numbers.random(count) < 0.9)
    return a_table({LR: [1e-3] * count}, metrics, objectives=objectives, feasible=feasible)


def points_of(table: TrialTable) -> list[tuple[float, ...]]:
    """Return the costs of the trials that count, all objectives minimized."""
    columns = [table.metrics[objective.name][table.feasible] for objective in table.objectives]
    return [tuple(map(float, point)) for point in zip(*columns, strict=True)]


def figure_of(name: str, table: TrialTable, *objectives: str) -> Any:
    """Return the figure."""
    return draw(figure_named(name), data_of(table), FigureOptions(objectives=objectives))


@pytest.mark.parametrize("objectives", [(LOSS, SECONDS), (LOSS, SECONDS, SIZE), (LOSS, SECONDS, SIZE, HEAT)], ids=len)
@pytest.mark.parametrize("count", [1, 7, 2_500])
def test_the_front_is_that_of_the_experiment(objectives: tuple[Objective, ...], count: int) -> None:
    costs = np.random.default_rng(4).random((count, len(objectives))).round(2)
    expected = sorted(pareto.front([tuple(map(float, point)) for point in costs]))

    assert front_rows(costs).tolist() == expected


def test_the_outline_of_an_endless_front_stays() -> None:
    angle = np.linspace(0, np.pi / 2, 30_000)
    costs = np.stack([1 - np.sin(angle), 1 - np.cos(angle)], axis=1)

    assert 1_000 <= len(front_rows(costs[np.random.default_rng(0).permutation(len(costs))])) <= 3_000


def test_trials_are_told_apart_with_their_numbers() -> None:
    table = a_table(
        {LR: [1e-3] * 4},
        {"loss": [1.0, 2.0, 3.0, 0.1], "accuracy": [0.5, 0.9, 0.8, 0.99]},
        objectives=[LOSS, ACCURACY],
        feasible=[True, True, True, False],
    )
    found = {
        trace.name: list(trace.customdata) for trace in figure_of("pareto", table).data if trace.customdata is not None
    }

    assert found == {
        "not beaten (2)": ["demo-00000", "demo-00001"],
        "beaten by another (1)": ["demo-00002"],
        "infeasible (1)": ["demo-00003"],
    }


def test_three_objectives_are_drawn_in_space_and_two_of_four_in_the_plane(golden: Golden) -> None:
    table = random_trials(50, (LOSS, SECONDS, SIZE, HEAT))

    assert {trace.type for trace in figure_of("pareto", table).data} == {"scatter3d"}
    plane = figure_of("pareto", table, "size", "heat")
    assert {trace.type for trace in plane.data} == {"scatter"}
    assert plane.layout.xaxis.title.text == "size (minimize)"
    golden(plane.layout.annotations[0].text.lower())


def test_over_two_of_three_objectives_marks_are_of_the_whole_front_and_the_line_of_the_two() -> None:
    table = a_table(
        {LR: [1e-3] * 3},
        {"loss": [1.0, 2.0, 3.0], "seconds": [1.0, 2.0, 3.0], "size": [9.0, 1.0, 5.0]},
        objectives=(LOSS, SECONDS, SIZE),
    )
    found = {trace.name: trace for trace in figure_of("pareto", table, "loss", "seconds").data}

    assert list(found["not beaten (2)"].customdata) == ["demo-00000", "demo-00001"]
    assert list(found["front"].x) == [1]


@pytest.mark.parametrize("objectives", [("loss",), ("loss", "seconds", "size", "heat")], ids=["one", "four"])
def test_other_numbers_of_objectives_are_refused(objectives: tuple[str, ...]) -> None:
    with pytest.raises(InvalidError, match="choose two or three"):
        figure_of("pareto", random_trials(50, (LOSS, SECONDS, SIZE, HEAT)), *objectives)


@pytest.mark.parametrize("figure", ["pareto", "hypervolume"])
def test_one_objective_has_no_front(figure: str) -> None:
    with refused("figure-impossible"):
        figure_of(figure, random_trials(9, (LOSS,)))


@pytest.mark.parametrize("objectives", [(LOSS, SECONDS), (LOSS, SECONDS, SIZE)], ids=len)
def test_the_last_hypervolume_is_that_of_the_experiment(objectives: tuple[Objective, ...]) -> None:
    table = random_trials(400, objectives)
    points = points_of(table)
    rows, volumes = volumes_of(table, objectives)

    assert volumes[-1] == pytest.approx(pareto.hypervolume(points, pareto.reference_point(points[:10])))
    assert (np.diff(volumes) >= 0).all()
    assert (np.diff(rows) > 0).all()


def test_the_hypervolume_of_four_objectives_is_estimated_and_never_falls() -> None:
    table = random_trials(300, (LOSS, SECONDS, SIZE, HEAT))
    points = points_of(table)
    _, volumes = volumes_of(table, table.objectives)

    assert (np.diff(volumes) >= 0).all()
    assert volumes[-1] == pytest.approx(pareto.hypervolume(points, pareto.reference_point(points[:10])), rel=0.1)
    assert "estimated" in figure_of("hypervolume", table).layout.annotations[0].text


@pytest.mark.parametrize("figure", ["pareto", "hypervolume"])
def test_the_size_is_bounded(figure: str) -> None:
    assert len(figure_of(figure, random_trials(100_000, (LOSS, SECONDS, SIZE))).to_json()) < 200_000


class CountingService(MemoryTuningService):
    """Notes whose curves are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, int]] = []

    def curve(self, namespace: str, trial: str, *, points: int, metric: str = "") -> Sequence[MetricLog]:
        self.asked.append((trial, metric, points))
        return super().curve(namespace, trial, points=points, metric=metric)


def put_trial(service: MemoryTuningService, name: str, state: str, index: int = 0) -> None:
    service.put(make_trial(name, condition(state), loss="0.5" if state != "Running" else None, index=index))
    service.store_readings(
        name, *(MetricLog(START + timedelta(seconds=10 * index + n), "loss", str(1 / n), n) for n in (1, 2, 4))
    )


@pytest.fixture
def service() -> CountingService:
    made = CountingService()
    made.put(make_experiment("demo"))
    put_trial(made, "done", "Succeeded", 0)
    put_trial(made, "busy", "Running", 1)
    return made


def test_all_trials_are_read_whatever_the_size_of_a_page(
    service: CountingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_pages, "_PAGE", 2)
    for index in range(2, 7):
        put_trial(service, f"more-{index}", "Succeeded", index)

    data = read_experiment(service, "default", "demo")
    assert sorted(data.trials.names) == ["busy", "done", *(f"more-{index}" for index in range(2, 7))]
    assert data.now > START.timestamp() - 10 * 365 * 86_400


def test_a_missing_experiment_is_not_found_and_figures_without_curves_read_none(service: CountingService) -> None:
    with pytest.raises(NotFoundError, match='"gone"'):
        read_experiment(service, "default", "gone")

    with_curves(service, read_experiment(service, "default", "demo"), figure_named("history"), FigureOptions())

    assert service.asked == []


def test_curves_are_read_of_the_trials_that_a_figure_asks_for_with_the_metric_that_was_chosen(
    service: CountingService,
) -> None:
    data = with_curves(
        service, read_experiment(service, "default", "demo"), figure_named("intermediate"), FigureOptions(metric="loss")
    )

    assert {(trial, metric) for trial, metric, _ in service.asked} == {("done", "loss"), ("busy", "loss")}
    assert list(data.curves["done"].values) == [1, 0.5, 0.25]
    assert list(data.curves["busy"].seconds) == [1, 2, 4]


def test_the_curve_of_an_ended_trial_is_read_once_and_that_of_a_running_one_each_time(service: CountingService) -> None:
    kept = CurveCache()
    data, kind = read_experiment(service, "default", "demo"), figure_named("intermediate")
    first = with_curves(service, data, kind, FigureOptions(), kept)
    service.store_readings("busy", MetricLog(START + timedelta(seconds=20), "loss", "0.1", 8))
    second = with_curves(service, data, kind, FigureOptions(), kept)

    assert sorted(trial for trial, _, _ in service.asked) == ["busy", "busy", "done"]
    assert second.curves["done"] is first.curves["done"]
    assert list(second.curves["busy"].values) == [1, 0.5, 0.25, 0.1]


def test_a_trial_that_is_deleted_meanwhile_is_left_out(service: CountingService) -> None:
    data = read_experiment(service, "default", "demo")
    service.delete("default", "demo")

    assert with_curves(service, data, figure_named("intermediate"), FigureOptions()).curves == {}


def test_the_curves_that_were_asked_for_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_KEPT", 2)
    kept, read = CurveCache(), []

    def curve(name: str) -> object:
        def fetch() -> object:
            read.append(name)
            return object()

        return kept.curve(name, fetch)  # type: ignore[arg-type]  # what is kept does not matter

    for name in ("a", "b", "a", "c", "a", "b"):
        curve(name)

    assert read == ["a", "b", "c", "b"]
