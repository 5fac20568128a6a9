"""What is read for figures, and how often."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from katib.api.metrics import MetricLog
from katib.errors import NotFoundError
from katib.figures import reading
from katib.figures.catalogue import figure_named
from katib.figures.data import Choice
from katib.figures.reading import KeptCurves, read_experiment, with_curves
from katib.tuning import trial_pages
from tests.support.tuning import START, MemoryTuningService, condition, make_experiment, make_trial


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


def test_a_missing_experiment_is_not_found(service: CountingService) -> None:
    with pytest.raises(NotFoundError, match='"gone"'):
        read_experiment(service, "default", "gone")


def test_curves_are_read_of_the_trials_that_a_figure_asks_for_with_the_metric_that_was_chosen(
    service: CountingService,
) -> None:
    data = with_curves(
        service, read_experiment(service, "default", "demo"), figure_named("intermediate"), Choice(metric="loss")
    )

    assert {(trial, metric) for trial, metric, _ in service.asked} == {("done", "loss"), ("busy", "loss")}
    assert list(data.curves["done"].values) == [1, 0.5, 0.25]
    assert list(data.curves["busy"].seconds) == [1, 2, 4]


def test_a_figure_without_curves_reads_none(service: CountingService) -> None:
    with_curves(service, read_experiment(service, "default", "demo"), figure_named("history"), Choice())

    assert service.asked == []


def test_the_curve_of_an_ended_trial_is_read_once_and_that_of_a_running_one_each_time(
    service: CountingService,
) -> None:
    kept = KeptCurves()
    data, kind = read_experiment(service, "default", "demo"), figure_named("intermediate")
    first = with_curves(service, data, kind, Choice(), kept)
    service.store_readings("busy", MetricLog(START + timedelta(seconds=20), "loss", "0.1", 8))
    second = with_curves(service, data, kind, Choice(), kept)

    assert sorted(trial for trial, _, _ in service.asked) == ["busy", "busy", "done"]
    assert second.curves["done"] is first.curves["done"]
    assert list(second.curves["busy"].values) == [1, 0.5, 0.25, 0.1]


def test_a_trial_that_is_deleted_meanwhile_is_left_out(service: CountingService) -> None:
    data = read_experiment(service, "default", "demo")
    service.delete("default", "demo")

    assert with_curves(service, data, figure_named("intermediate"), Choice()).curves == {}


def test_the_curves_that_were_asked_for_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_KEPT", 2)
    kept, read = KeptCurves(), []

    def curve(name: str) -> object:
        def fetch() -> object:
            read.append(name)
            return object()

        return kept.curve(name, fetch)  # type: ignore[arg-type]  # what is kept does not matter

    for name in ("a", "b", "a", "c", "a", "b"):
        curve(name)

    assert read == ["a", "b", "c", "b"]
