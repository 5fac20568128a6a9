"""The pages Algorithms and Health."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from katib.api.algorithm_advice import ADVICE
from katib.rest.server import Server
from katib.tuning.service import Diagnosis
from katib.ui import ui_routes
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


def test_every_algorithm_is_there_with_its_settings(http: httpx.Client) -> None:
    page = http.get("algorithms").text

    assert all(word in page for word in ("random_state", "house-special", "known to its service alone", "medianstop"))


def test_a_part_that_does_not_work_is_named(http: httpx.Client) -> None:
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
