"""What others choose is text in every page: names of metrics, values, messages, output."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from katib.doors.rest.server import Server
from katib.doors.ui import ui_routes
from tests.support.hostile import SCRIPT, hostile_service
from tests.support.page_routes import address, page_paths

STREAMS = ("/live", "/changes")
PATHS = [path for path in page_paths() if not path.endswith(STREAMS)]
QUERIES = [
    "/katib/?text=" + SCRIPT,
    "/katib/compare?experiment=default/demo&experiment=" + SCRIPT,
    "/katib/compare?trial=default/demo-0000&trial=default/demo-0001",
    "/katib/new?from=default/demo",
    "/katib/new?from=" + SCRIPT,
    "/katib/open?ticket=" + SCRIPT,
    "/katib/" + SCRIPT,
    "/katib/experiments/default/" + SCRIPT,
    *(f"/katib/experiments/default/demo?tab={tab}" for tab in ("trials", "analysis", "events", "yaml", SCRIPT)),
    f"/katib/experiments/default/demo?tab=trials&text={SCRIPT}&where=x={SCRIPT}&sort={SCRIPT}",
    f"/katib/data/experiments/default/demo/table?text={SCRIPT}",
]


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with (
        Server(hostile_service(), host="127.0.0.1", port=0, ui=ui_routes) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=60, headers={"accept": "text/html"}) as client,
    ):
        yield client


@pytest.mark.parametrize("path", [*(address(path, "default") for path in PATHS), *QUERIES])
def test_a_script_in_what_others_choose_is_text(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    kind = answer.headers.get("content-type", "").partition(";")[0]

    assert answer.status_code < 500
    assert kind != "text/html" or ("<script>w" not in answer.text and "<img src=x" not in answer.text)
    assert answer.headers["x-content-type-options"] == "nosniff"  # so that text is never taken for a page


def test_the_script_is_in_what_these_tests_look_at(http: httpx.Client) -> None:
    assert "&lt;script&gt;" in http.get("/katib/experiments/default/demo").text
