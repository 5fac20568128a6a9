"""The page of a trial and what its script asks for, without a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

from katib.doors.rest.server import Server
from katib.doors.ui import ui_routes
from katib.errors import ForbiddenError
from katib.model.metrics import MetricLog
from katib.service.tuning.service import Diagnosis
from tests.support.tuning import START, Json, MemoryTuningService, condition, document, make_trial
from tests.support.waiting import eventually

RUNS = condition("Running", "TrialRunning", "Trial is running")
NAME = "demo-run"


@pytest.fixture
def service() -> MemoryTuningService:
    made = MemoryTuningService()
    made.submit(document("demo"), source="demo.yaml")
    made.play("default", "demo")
    made.put(make_trial(NAME, RUNS, index=10, x="0.7"))
    return made


@pytest.fixture
def client(service: MemoryTuningService) -> Iterator[httpx.Client]:
    with (
        Server(service, host="127.0.0.1", port=0, ui=ui_routes) as server,
        httpx.Client(base_url=f"{server.url}/katib/", trust_env=False, timeout=60) as made,
    ):
        yield made


def report(service: MemoryTuningService, *values: str, first: int = 0, name: str = "loss") -> None:
    readings = (
        MetricLog(START + timedelta(seconds=100 + step), name, value, step) for step, value in enumerate(values, first)
    )
    service.store_readings(NAME, *readings)


def events(lines: Iterator[str]) -> Iterator[tuple[str, Json]]:
    """Yield name and data of each event."""
    name = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def next_readings(found: Iterator[tuple[str, Json]]) -> Json:
    return next(data for name, data in found if name == "readings")


def test_a_page_explains_the_trial_and_escapes_what_it_says(service: MemoryTuningService, client: httpx.Client) -> None:
    why = Diagnosis("Trial", NAME, "Running", "it <b>waits</b>", ("a finding",), ("a remedy",), ("<script>tail",))
    service.explain("default", why)
    page = client.get(f"trials/default/{NAME}").raise_for_status().text

    assert "it &lt;b&gt;waits&lt;/b&gt;" in page
    assert "&lt;script&gt;tail" in page
    assert "a finding" in page
    assert "a remedy" in page


def test_a_part_that_may_not_be_read_says_so_and_the_rest_is_shown(
    service: MemoryTuningService, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ForbiddenError("pods of default may not be listed")

    monkeypatch.setattr(service, "_on_pods", refuse)
    response = client.get(f"trials/default/{NAME}").raise_for_status()

    assert "pods of default" in response.text
    assert "Parameters" in response.text


def test_a_missing_trial_is_not_found(client: httpx.Client) -> None:
    for address in ("trials/default/ghost", "data/trials/default/ghost/curves", "data/trials/default/ghost/live"):
        assert client.get(address).status_code == 404


def test_curves_come_with_the_cursor_behind_them(service: MemoryTuningService, client: httpx.Client) -> None:
    report(service, "3", "2")
    answer = client.get(f"data/trials/default/{NAME}/curves").raise_for_status().json()

    assert [one["metric"] for one in answer["figures"]] == ["loss"]
    assert answer["figures"][0]["figure"]["data"][0]["y"] == [3, 2]
    assert answer["cursor"] == service.readings("default", NAME).cursor


@pytest.mark.parametrize("query", ["by=sideways", "smoothing=1", "smoothing=-1", "log=perhaps"])
def test_a_look_that_there_is_not_is_bad_input(client: httpx.Client, query: str) -> None:
    assert client.get(f"data/trials/default/{NAME}/curves?{query}").status_code == 422


def test_the_stream_goes_on_behind_a_cursor(service: MemoryTuningService, client: httpx.Client) -> None:
    report(service, "3")
    cursor = service.readings("default", NAME).cursor
    report(service, "2", first=1)
    with client.stream("GET", f"data/trials/default/{NAME}/live", params={"since": cursor}) as response:
        found = events(response.iter_lines())
        caught_up = next_readings(found)
        report(service, "1", "nan", first=2)
        fresh = next_readings(found)

    assert caught_up["metrics"] == {"loss": [[1, 1.0, 2.0]]}
    assert (caught_up["before"], fresh["before"]) == (cursor, caught_up["cursor"])
    assert fresh["metrics"] == {"loss": [[2, 2.0, 1.0], [3, 3.0, None]]}


def test_a_reader_that_connects_again_goes_on_where_it_was(service: MemoryTuningService, client: httpx.Client) -> None:
    report(service, "3")
    cursor = service.readings("default", NAME).cursor
    report(service, "2", first=1)
    headers = {"last-event-id": cursor}
    with client.stream("GET", f"data/trials/default/{NAME}/live?since=0", headers=headers) as response:
        assert next_readings(events(response.iter_lines()))["metrics"] == {"loss": [[1, 1.0, 2.0]]}


def test_a_flood_of_readings_is_thinned_on_its_way(service: MemoryTuningService, client: httpx.Client) -> None:
    report(service, *map(str, range(5_000)))
    with client.stream("GET", f"data/trials/default/{NAME}/live?since=0") as response:
        points = next_readings(events(response.iter_lines()))["metrics"]["loss"]

    assert len(points) <= 400
    assert (points[0][2], points[-1][2]) == (0, 4_999)


def test_the_stream_of_a_trial_ends_behind_its_last_reading(service: MemoryTuningService, client: httpx.Client) -> None:
    with client.stream("GET", f"data/trials/default/{NAME}/live") as response:
        found = events(response.iter_lines())
        first = next(found)
        done = condition("Succeeded", "TrialSucceeded", "Trial has succeeded", at=200)
        service.put(make_trial(NAME, RUNS, done, loss="2", index=10, x="0.7"))
        rest = list(found)

    assert (first[0], first[1]["state"]) == ("trial", "Running")
    assert [name for name, _ in rest] == ["trial", "end"]
    assert rest[0][1]["state"] == "Succeeded"


def test_the_stream_of_a_deleted_trial_says_so(service: MemoryTuningService, client: httpx.Client) -> None:
    with client.stream("GET", f"data/trials/default/{NAME}/live") as response:
        found = events(response.iter_lines())
        next(found)
        service.delete("default", "demo")
        rest = list(found)

    assert [name for name, _ in rest] == ["problem"]
    assert rest[0][1]["reason"] == "NotFound"


def test_nobody_looks_when_all_pages_are_closed(
    service: MemoryTuningService, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    def lookers() -> int:
        return sum(thread.name == f"trial default/{NAME}" for thread in threading.enumerate())

    with client.stream("GET", f"data/trials/default/{NAME}/live") as response:
        found = events(response.iter_lines())  # kept: what reads a stream closes it when it goes
        first, _ = next(found)
        assert (first, lookers()) == ("trial", 1)

    eventually(lambda: lookers() == 0, "the thread to end")


def test_neighbours_are_in_order_of_creation(client: httpx.Client) -> None:
    found = client.get("data/trials/default/demo-0001/neighbours").raise_for_status().json()

    assert (found["previous"], found["next"]) == ("demo-0000", "demo-0002")


def test_a_comparison_with_something_wrong_is_still_a_page(client: httpx.Client) -> None:
    page = client.get("compare?experiment=demo&experiment=ghost&trial=demo-0000").raise_for_status().text
    broken = client.get("compare?trial=a/b/c").raise_for_status().text

    assert "default/ghost" in page
    assert "demo-0000" in page
    assert "is not NAMESPACE/NAME" in broken


FILES = {
    "plots/roc.png": b"\x89PNG",
    "scores.csv": b"class,<b>recall</b>\n0,0.91\n",
    "summary.txt": b"epoch 3\n<script>alert(1)</script>\n",
    "page.html": b"<script>alert(1)</script>",
    "empty.csv": b"",
}


def test_files_of_a_trial_are_images_tables_texts_and_links(client: httpx.Client, service: MemoryTuningService) -> None:
    service.leave_files("default", NAME, FILES)
    page = client.get(f"trials/default/{NAME}").text
    address = f"api/v1/namespaces/default/trials/{NAME}/file?path="

    assert f'<img src="{address}plots%2Froc.png"' in page
    assert '<th scope="col">class</th><th scope="col">&lt;b&gt;recall&lt;/b&gt;</th>' in page
    assert "<td>0</td><td>0.91</td>" in page
    assert "epoch 3\n&lt;script&gt;alert(1)&lt;/script&gt;" in page
    for name in ("page.html", "empty.csv"):
        assert f'<li><a href="{address}{name}" download>{name}</a>' in page
    assert "<script>alert" not in page


def test_a_long_table_is_cut_and_a_long_text_too(client: httpx.Client, service: MemoryTuningService) -> None:
    rows = "".join(f"{i},x{i}\n" for i in range(5_000))
    service.leave_files("default", NAME, {"t.csv": f"a,b\n{rows}".encode(), "t.log": b"line\n" * 40})
    page = client.get(f"trials/default/{NAME}").text

    assert "<td>x11</td>" in page
    assert "<td>x12</td>" not in page
    assert page.count("The beginning; the link above has all of it.") == 2


def test_a_page_without_files_says_nothing_about_them(client: httpx.Client) -> None:
    assert "files-title" not in client.get(f"trials/default/{NAME}").text


@pytest.mark.parametrize(
    ("path", "kind", "way"),
    [
        ("plots/roc.png", "image/png", "inline"),
        ("summary.txt", "text/plain; charset=utf-8", "inline"),
        ("page.html", "application/octet-stream", "attachment"),
    ],
)
def test_a_file_cannot_run_in_a_browser(
    client: httpx.Client, service: MemoryTuningService, path: str, kind: str, way: str
) -> None:
    service.leave_files("default", NAME, FILES)
    answer = client.get(f"/api/v1/namespaces/default/trials/{NAME}/file", params={"path": path})

    assert answer.content == FILES[path]
    assert answer.headers["content-type"] == kind
    assert answer.headers["content-disposition"].startswith(f"{way}; filename*=UTF-8''")
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert answer.headers["x-content-type-options"] == "nosniff"
