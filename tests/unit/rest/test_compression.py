"""Which answers are compressed, and which go out as they are."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import httpx
import pytest

from katib.doors.rest.server import Server
from katib.doors.ui import ui_routes
from tests.support.tuning import MemoryTuningService, document

PAGE = "/katib/experiments/default/demo"


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    service = MemoryTuningService()
    service.submit(document("demo"), source="demo.yaml")
    service.play("default", "demo")
    with (
        Server(service, host="127.0.0.1", port=0, ui=ui_routes) as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        yield client


def raw(http: httpx.Client, path: str, accepts: str) -> tuple[httpx.Headers, bytes]:
    with http.stream("GET", path, headers={"accept-encoding": accepts}) as answer:
        return answer.headers, b"".join(answer.iter_raw())


@pytest.mark.parametrize("path", [PAGE, "/katib/data/experiments/default/demo/figures/history"])
def test_what_a_page_is_made_of_is_compressed_for_who_can_read_it(http: httpx.Client, path: str) -> None:
    headers, body = raw(http, path, "gzip, br")
    plain_headers, plain = raw(http, path, "identity")

    assert headers["content-encoding"] == "gzip"
    assert len(body) == int(headers["content-length"]) < len(plain)
    assert len(gzip.decompress(body)) == pytest.approx(len(plain), abs=20)  # ages may have changed
    assert "content-encoding" not in plain_headers
    assert headers["vary"] == "accept-encoding"


def test_short_answers_and_those_to_programs_go_out_as_they_are(http: httpx.Client) -> None:
    for path in ("/api/v1/namespaces/default/experiments/demo", "/katib/api/v1/namespaces/default/why/demo"):
        headers, _ = raw(http, path, "gzip")

        assert "content-encoding" not in headers


def test_a_stream_is_not_held_back_to_be_compressed(http: httpx.Client) -> None:
    path = "/katib/data/experiments/default/demo/live"
    with http.stream("GET", path, headers={"accept-encoding": "gzip"}) as answer:
        first = next(answer.iter_raw())

        assert "content-encoding" not in answer.headers
        assert first.startswith(b"retry:")
