"""The pages Algorithms and Health."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from katib.doors.rest.server import Server
from katib.doors.ui import ui_routes
from katib.doors.ui.about_pages import ADVICE
from katib.model.names import EXPERIMENT_STOPPED
from katib.service.tuning.service import Diagnosis
from suggestion_services.algorithms import ENTRIES
from tests.support.tuning import MemoryTuningService, condition, document, make_experiment

ROOT = Path(__file__).parents[3]


@pytest.fixture
def service() -> MemoryTuningService:
    return MemoryTuningService()


@pytest.fixture
def http(service: MemoryTuningService) -> Iterator[httpx.Client]:
    pages = {"/readyz": lambda: (503, "application/json", b'{"controllers": true, "database": false}')}
    with (
        Server(service, host="127.0.0.1", port=0, pages=pages, ui=ui_routes) as server,
        httpx.Client(base_url=f"{server.url}/katib/", trust_env=False) as client,
    ):
        yield client


def test_advice_is_about_algorithms_that_there_are_and_stands_in_the_docs() -> None:
    page = (ROOT / "docs" / "reference" / "algorithms.md").read_text()

    assert {name for _, names in ADVICE for name in names} <= {entry.info.name for entry in ENTRIES}
    assert [situation for situation, _ in ADVICE if f"| {situation} |" not in page] == []


def test_every_algorithm_is_there_and_a_part_that_does_not_work_is_named(http: httpx.Client) -> None:
    page = http.get("algorithms").text

    assert all(word in page for word in ("random_state", "house-special", "known to its service alone", "medianstop"))

    page = http.get("health").text

    assert "<strong>Controllers</strong> at work" in page
    assert "<strong>Database of objects</strong> not at work" in page


def test_what_does_not_progress_says_why(http: httpx.Client, service: MemoryTuningService) -> None:
    service.submit(document("demo"), source="demo.yaml")
    service.put(make_experiment("demo", condition("Failed", message="max failed")))
    service.explain("default", Diagnosis("Experiment", "demo", "Failed", "All <b>failed</b>.", (), ("Look.",)))
    page = http.get("health").text

    assert "All &lt;b&gt;failed&lt;/b&gt;." in page
    assert "<li>Look.</li>" in page


def _explained(
    service: MemoryTuningService, name: str, *remedies: str, running: int = 0, stopped: bool = False
) -> None:
    """Keep an experiment with what `katib why` says of it."""
    service.submit(document(name), source=f"{name}.yaml")
    runs = condition("Running", EXPERIMENT_STOPPED if stopped else "")
    if stopped:
        runs["status"] = "False"
    service.put(make_experiment(name, condition("Created"), runs, trialsRunning=running))
    service.explain("default", Diagnosis("Experiment", name, "Running", f"Verdict of {name}.", (), remedies))


def test_what_only_progresses_or_was_stopped_by_its_user_is_no_problem(
    http: httpx.Client, service: MemoryTuningService
) -> None:
    _explained(service, "well", running=2)
    _explained(service, "stopped", "`katib resume stopped` resumes it.", stopped=True)
    _explained(service, "ailing", "Look at its output.", running=2)
    _explained(service, "waiting")
    page = http.get("health").text

    assert [name for name in ("well", "stopped", "ailing", "waiting") if f"Verdict of {name}." in page] == [
        "ailing",
        "waiting",
    ]


def test_many_experiments_that_progress_do_not_hide_one_that_waits(
    http: httpx.Client, service: MemoryTuningService
) -> None:
    _explained(service, "waiting")
    for number in range(20):
        _explained(service, f"well-{number}", running=1)

    assert "Verdict of waiting." in http.get("health").text
