"""What the pages of experiments answer with."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import sys
from collections.abc import Iterator

import httpx
import pytest

from katib.doors.rest.server import Server
from katib.doors.ui import ui_routes
from katib.model.types import Experiment
from katib.service.tuning.service import RecordedEvent
from tests.support.tuning import START, MemoryTuningService, condition, document, make_pareto_experiment, make_trial

DEMO = "experiments/default/demo"
NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def service() -> MemoryTuningService:
    """An experiment with three trials, the last of which failed; it prints what would harm a page."""
    service = MemoryTuningService()
    service.submit(document("demo", trials=12), source="demo.yaml")
    for index, loss in enumerate(("0.25", "0.125", None)):
        state = condition("Succeeded" if loss else "Failed", message=NASTY)
        service.put(make_trial(f"demo-{index}", state, index=index, x=f"0.{index}1", loss=loss))
    experiment = service.get(Experiment, "default", "demo")
    status = {
        "startTime": "2030-01-01T12:00:00Z",
        "conditions": [condition("Running", message=f"Runs {NASTY}")],
        "trialsSucceeded": 2,
        "trialsFailed": 1,
        "currentOptimalTrial": {
            "bestTrialName": "demo-1",
            "parameterAssignments": [{"name": "x", "value": "0.11"}],
            "observation": {"metrics": [{"name": "loss", "min": "0.125", "max": "0.125", "latest": "0.125"}]},
        },
    }
    service.put({**experiment.encode(), "status": status})
    suggestion = {
        "apiVersion": "kubeflow.org/v1beta1",
        "kind": "Suggestion",
        "metadata": experiment.encode()["metadata"],
    }
    service.put({**suggestion, "status": {"explanation": f"gp learns from earlier trials of old (57%) {NASTY}"}})
    service.record("default", RecordedEvent(START, "Trial", "demo-2", True, "JobFailed", NASTY, 2))
    return service


@pytest.fixture(scope="module")
def http(service: MemoryTuningService) -> Iterator[httpx.Client]:
    with (
        Server(service, host="127.0.0.1", port=0, ui=ui_routes) as server,
        httpx.Client(base_url=f"{server.url}/katib/", trust_env=False) as client,
    ):
        yield client


def text_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", answer.text)))


def test_a_page_is_complete_before_its_script_runs(http: httpx.Client) -> None:
    text = text_of(http.get(DEMO))

    assert "2 Succeeded, 1 Failed" in text
    assert "0.125 loss in demo-1" in text
    assert text.index("demo-1 best") < text.index("demo-0")


def test_the_table_answers_what_its_address_asks(http: httpx.Client) -> None:
    text = text_of(http.get(f"data/{DEMO}/table", params={"where": "loss:0.2..", "size": "10", "column": "loss"}))

    assert "1 of 3 trials" in text
    assert "demo-0 0.25" in text

    answer = http.get(f"data/{DEMO}/table", params={"where": "loss:low..high"})

    assert (answer.status_code, answer.json()["errors"][0]["origin"]) == (422, "filter-value")
    assert "\n" not in answer.json()["detail"]

    assert "Trials Analysis" in text_of(http.get(DEMO, params={"tab": "nothing"}))

    assert "old (57%)" in text_of(http.get(f"data/{DEMO}/events"))


@pytest.mark.parametrize("query", ["size=0", "size=5000", "page=0", "order=sideways"])
def test_what_a_table_cannot_show_is_refused(http: httpx.Client, query: str) -> None:
    assert http.get(f"data/{DEMO}/table?{query}").status_code == 422


def test_trials_are_downloaded_as_csv_as_they_are_filtered_and_ordered(http: httpx.Client) -> None:
    answer = http.get(f"data/{DEMO}/trials.csv", params={"state": "Succeeded", "sort": "loss"})
    rows = list(csv.DictReader(io.StringIO(answer.text)))

    assert answer.headers["content-disposition"] == 'attachment; filename="demo-trials.csv"'
    assert [(row["trial"], row["x"], row["loss"]) for row in rows] == [
        ("demo-1", "0.11", "0.125"),
        ("demo-0", "0.01", "0.25"),
    ]
    assert rows[0]["started"] == "2030-01-01T12:00:10Z"
    assert rows[0]["duration"] == "5"


def test_trials_are_downloaded_as_json_or_parquet(http: httpx.Client) -> None:
    answer = http.get(f"data/{DEMO}/trials.json", params={"column": ["loss", "state"]})

    assert answer.json() == [
        {"trial": "demo-0", "loss": 0.25, "state": "Succeeded"},
        {"trial": "demo-1", "loss": 0.125, "state": "Succeeded"},
        {"trial": "demo-2", "loss": None, "state": "Failed"},
    ]

    parquet = pytest.importorskip("pyarrow.parquet")
    answer = http.get(f"data/{DEMO}/trials.parquet")
    table = parquet.read_table(io.BytesIO(answer.content)).to_pylist()

    assert [row["loss"] for row in table] == [0.25, 0.125, None]
    assert table[0]["number"] == 1
    assert table[0]["created"].isoformat() == "2030-01-01T12:00:00+00:00"

    nobody = {"state": "Killed"}

    assert http.get(f"data/{DEMO}/trials.json", params=nobody).json() == []
    assert len(http.get(f"data/{DEMO}/trials.csv", params=nobody).text.splitlines()) == 1


def test_parquet_without_its_package_says_what_to_install(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    answer = http.get(f"data/{DEMO}/trials.parquet")

    assert (answer.status_code, answer.json()["errors"][0]["origin"]) == (422, "download-parquet")
    assert "katib[files]" in answer.json()["detail"]


def test_an_experiment_is_downloaded_as_yaml(http: httpx.Client) -> None:
    answer = http.get(f"data/{DEMO}/experiment.yaml")

    assert answer.text.startswith("apiVersion: kubeflow.org/v1beta1")
    assert 'filename="demo.yaml"' in answer.headers["content-disposition"]


def test_an_experiment_that_there_is_not_is_not_found(http: httpx.Client) -> None:
    for path in (
        "experiments/default/none",
        "data/experiments/default/none/table",
        "data/experiments/default/none/head",
    ):
        assert http.get(path).status_code == 404


def test_a_figure_that_cannot_be_drawn_says_why(http: httpx.Client, service: MemoryTuningService) -> None:
    service.submit(document("fresh"), source="fresh.yaml")
    try:
        answer = http.get("data/experiments/default/fresh/figures/history")
    finally:
        service.delete("default", "fresh")

    assert answer.json() == {"obstacle": "No trial has a value yet."}


def test_the_list_is_filtered_and_ordered(http: httpx.Client) -> None:
    assert "Runs" not in text_of(http.get("./"))
    assert "1 experiment" in text_of(http.get("data/list"))
    assert "0 of 1 experiments" in text_of(http.get("data/list", params={"text": "nothing"}))
    assert http.get("data/list", params={"sort": "colour"}).json()["errors"][0]["origin"] == "table-sort"


def test_a_changed_experiment_is_sent_to_the_open_list(http: httpx.Client, service: MemoryTuningService) -> None:
    with http.stream("GET", "data/list/live") as answer:
        lines = answer.iter_lines()
        assert "event: hello" in (next(lines) for _ in range(10))

        service.submit(document("another"), source="another.yaml")
        try:
            data = next(line for line in lines if line.startswith("data: ") and "rows" in line)
        finally:
            service.delete("default", "another")

    assert 'id="default/another"' in json.loads(data.removeprefix("data: "))["rows"]["default/another"]


def test_with_several_objectives_the_front_is_on_the_overview_and_with_one_nowhere() -> None:
    service = MemoryTuningService()
    service.submit(document("one"), source="one.yaml")
    service.put(make_pareto_experiment("several"))
    with Server(service, host="127.0.0.1", port=0, ui=ui_routes) as server:
        found = {
            (name, tab): re.findall(
                r'data-figure="(\w+)"',
                httpx.get(f"{server.url}/katib/experiments/default/{name}?tab={tab}", trust_env=False).text,
            )
            for name in ("one", "several")
            for tab in ("overview", "analysis")
        }

    assert found["one", "overview"] == ["history", "parallel"]
    assert found["several", "overview"] == ["pareto", "hypervolume", "parallel"]
    assert set(found["several", "analysis"]) - set(found["one", "analysis"]) == {"pareto", "hypervolume"}


def test_an_experiment_that_was_confirmed_shows_what_was_found() -> None:
    service = MemoryTuningService()
    service.submit(document("demo"), source="demo.yaml")
    service.play("default", "demo")
    found = service.confirm("default", "demo")
    with (
        Server(service, host="127.0.0.1", port=0, ui=ui_routes) as server,
        httpx.Client(base_url=f"{server.url}/katib/", trust_env=False) as client,
    ):
        pages = [html.unescape(client.get(path).text) for path in (DEMO, f"data/{DEMO}/head")]
        own = client.get(f"data/{DEMO}-confirm/head").text

    assert all(found.verdict in page and 'href="experiments/default/demo-confirm"' in page for page in pages)
    assert all('id="open confirm"' in page for page in pages)
    assert 'data-action="confirm"' in pages[0]
    assert 'id="open confirm"' not in own
