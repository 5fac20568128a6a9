"""Figures as the page's scripts ask for them; those that take long are drawn once for all pages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

from katib.doors.rest.server import Server
from katib.doors.ui import ui_routes
from katib.doors.ui.figure_routes import KeptFigures
from katib.figures.catalogue import FIGURES
from katib.model.metrics import MetricLog
from tests.support.golden import Golden
from tests.support.tuning import START, MemoryTuningService, condition, make_experiment, make_trial


@pytest.fixture
def service() -> MemoryTuningService:
    made = MemoryTuningService()
    made.put(make_experiment("demo"))
    made.put(make_trial("done", condition("Succeeded"), loss="0.25", x="0.5"))
    made.store_readings("done", *(MetricLog(START + timedelta(seconds=n), "loss", str(1 / n), n) for n in (1, 2, 4)))
    return made


@pytest.fixture
def http(service: MemoryTuningService) -> Iterator[httpx.Client]:
    with (
        Server(service, host="127.0.0.1", port=0, ui=ui_routes) as server,
        httpx.Client(
            base_url=f"{server.url}/katib/data/experiments/default/demo/figures/", trust_env=False, timeout=60.0
        ) as client,
    ):
        yield client


def names(figure: httpx.Response) -> list[str]:
    return [trace["name"] for trace in figure.json()["data"]]


def test_a_figure_of_curves_is_drawn_of_what_the_trials_reported(http: httpx.Client) -> None:
    assert "best trial" in names(http.get("intermediate"))


def test_the_curve_of_a_running_trial_goes_on(http: httpx.Client, service: MemoryTuningService) -> None:
    service.put(make_trial("busy", condition("Running"), index=1))
    service.store_readings("busy", MetricLog(START + timedelta(seconds=11), "loss", "0.5", 1))
    before = http.get("intermediate").json()
    service.store_readings("busy", MetricLog(START + timedelta(seconds=12), "loss", "0.125", 2))
    after = http.get("intermediate").json()

    ends = [next(t for t in figure["data"] if t["name"] == "Running") for figure in (before, after)]
    assert [end["y"] for end in ends] == [[0.5], [0.125]]


@pytest.mark.parametrize("figure", [kind.name for kind in FIGURES])
def test_each_figure_is_answered_with_a_picture_or_the_reason_why_there_is_none(
    http: httpx.Client, figure: str
) -> None:
    answer = http.get(figure)

    assert answer.status_code == 200
    assert answer.json().get("data") or answer.json()["obstacle"].endswith(".")
    assert answer.headers["cache-control"] == "no-store"


def test_a_choice_of_what_is_not_there_is_an_error_in_one_line(http: httpx.Client, golden: Golden) -> None:
    answer = http.get("intermediate", params={"metric": "speed"})

    assert answer.status_code == 422
    golden(answer.json()["detail"])


class Drawing:
    """A figure that counts how often it is drawn, with a clock that stands still."""

    def __init__(self) -> None:
        self.times = 0
        self.now = 0.0
        self.kept = KeptFigures(lambda: self.now)

    def draw(self) -> str:
        """Return the number of the drawing."""
        self.times += 1
        return str(self.times)

    def get(self, version: int, key: str = "key") -> tuple[str, int]:
        """Return what a page is answered."""
        found = self.kept.get(key, version, 10.0, self.draw)
        return found.json, found.version


def test_the_same_trials_are_drawn_once_however_late() -> None:
    drawing = Drawing()
    drawing.get(1)
    drawing.now = 1_000.0

    assert drawing.get(1) == ("1", 1)


def test_changed_trials_are_drawn_again_after_a_while_only() -> None:
    drawing = Drawing()
    drawing.get(1)
    drawing.now = 9.0

    assert drawing.get(2) == ("1", 1)
    drawing.now = 10.0
    assert drawing.get(3) == ("2", 3)


def test_pages_that_ask_at_once_wait_for_one_drawing() -> None:
    drawing = Drawing()
    pages = [threading.Thread(target=drawing.get, args=(1,)) for _ in range(20)]
    for page in pages:
        page.start()
    for page in pages:
        page.join()

    assert drawing.times == 1


def test_an_error_is_not_kept() -> None:
    drawing = Drawing()

    def fail() -> str:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - any error
        drawing.kept.get("key", 1, 10.0, fail)
    assert drawing.get(1) == ("1", 1)


def test_the_figures_asked_for_last_are_kept() -> None:
    drawing = Drawing()
    for number in range(100):
        drawing.get(1, f"key {number}")
    drawing.get(1, "key 99")
    drawing.get(1, "key 0")

    assert drawing.times == 101
