"""Who is refused: foreign pages, rebound names, callers without the token."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from katib.doors.rest.client import HttpTuningService
from katib.doors.rest.server import Server, is_loopback
from katib.doors.rest.visits import Headers, is_page, is_visit
from tests.support.refusals import refused
from tests.support.tuning import MemoryTuningService

LIST = "/api/v1/experiments"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One server for the module: a refused request leaves nothing behind."""
    with Server(MemoryTuningService(), host="127.0.0.1", port=0) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        yield client


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"origin": "https://evil.example"}, id="foreign-origin"),
        pytest.param({"origin": "null"}, id="sandboxed-page"),
        pytest.param({"origin": "http://127.0.0.1:1"}, id="another-port-of-this-machine"),
        pytest.param({"sec-fetch-site": "cross-site"}, id="cross-site"),
        pytest.param({"sec-fetch-site": "same-site"}, id="same-site"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_requests_of_other_web_pages_are_refused(http: httpx.Client, headers: dict[str, str], method: str) -> None:
    answer = http.request(method, LIST, headers=headers)

    assert answer.status_code == 403
    assert answer.json()["reason"] == "CrossSite"
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil.example:80", "127.0.0.1:80, evil.example"]
)
def test_a_name_that_is_not_ours_is_refused(http: httpx.Client, host: str) -> None:
    """A page whose name was rebound to 127.0.0.1 is same-origin for the browser; its Host header gives it away."""
    answer = http.get(LIST, headers={"host": host})

    assert answer.status_code == 403
    assert answer.json()["reason"] == "ForeignHost"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8765", "127.0.0.1:1", "[::1]:8765"])
def test_the_names_of_loopback_are_ours(http: httpx.Client, host: str) -> None:
    assert http.get(LIST, headers={"host": host}).status_code == 200


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_our_own_pages_and_typed_addresses_are_welcome(http: httpx.Client, server: Server, site: str) -> None:
    assert http.get(LIST, headers={"origin": server.url, "sec-fetch-site": site}).status_code == 200


@pytest.fixture(scope="module")
def guarded() -> Iterator[httpx.Client]:
    with (
        Server(MemoryTuningService(), host="127.0.0.1", port=0, token="sésame") as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        yield client


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer wrong", "Basic sésame", "sésame"], ids=["none", "empty", "wrong", "basic", "bare"]
)
@pytest.mark.parametrize("path", [LIST, "/openapi.json", "/docs", "/nowhere"])
def test_without_the_token_nothing_is_answered(guarded: httpx.Client, value: str, path: str) -> None:
    answer = guarded.get(path, headers={"authorization": value.encode()} if value else {})

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="katib", Basic realm="katib", charset="UTF-8"'
    assert answer.json()["reason"] == "Unauthorized"


def test_the_client_sends_the_token(guarded: httpx.Client) -> None:
    with HttpTuningService(str(guarded.base_url), "sésame") as client:
        assert client.experiments() == ()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_with_the_token_the_server_answers(guarded: httpx.Client, scheme: str) -> None:
    assert guarded.get(LIST, headers={"authorization": f"{scheme} sésame".encode()}).status_code == 200


@pytest.mark.parametrize(("password", "status"), [("sésame", 200), ("wrong", 401), ("", 401)])
def test_a_browser_gives_the_token_as_a_password(guarded: httpx.Client, password: str, status: int) -> None:
    assert guarded.get(LIST, auth=("whoever", password)).status_code == status


def test_probes_need_no_token_and_counts_do(guarded: httpx.Client) -> None:
    answers = {path: guarded.get(path).status_code for path in ("/healthz", "/readyz", "/metrics")}

    assert answers == {"/healthz": 200, "/readyz": 200, "/metrics": 401}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_listening_beyond_loopback_needs_a_token(service: MemoryTuningService, host: str) -> None:
    with refused("token-required"):
        Server(service, host=host, port=0)


def test_beyond_loopback_any_name_will_do_because_the_token_guards(service: MemoryTuningService) -> None:
    with Server(service, host="0.0.0.0", port=0, token="secret") as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        headers = {"host": "tuner.example", "authorization": "Bearer secret"}

        assert httpx.get(url + LIST, headers=headers, trust_env=False).status_code == 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.2", True), ("::1", True), ("0.0.0.0", False), ("10.0.0.1", False), ("host", False)],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


PAGES = ["/", "/katib", "/katib/", "/katib/experiments/default/demo", "/katib/new", "/docs", "/katib/docs"]
OTHERS = [
    "/api/v1/experiments",
    "/openapi.json",
    "/metrics",
    "/katib/api/v1/experiments",
    "/katib/data/experiments/default/demo/live",
    "/katib/static/1/style.css",
    "/katib/openapi.json",
    "/katib/fetch_trial_logs/",
    "/katib/fetch_namespaces",
    "/katib/create_experiment/",
    "/katib/delete_experiment",
    "/katib/add_template/",
]
VISIT = {
    "host": "127.0.0.1",
    "sec-fetch-mode": "navigate",
    "sec-fetch-dest": "document",
    "sec-fetch-site": "cross-site",
}


def headers(values: dict[str, str]) -> Headers:
    return Headers((name.encode(), value.encode()) for name, value in values.items())


@pytest.mark.parametrize("path", PAGES)
def test_a_page_may_be_reached_from_a_link_anywhere(path: str) -> None:
    assert is_page(path)
    assert is_visit("GET", path, headers(VISIT))


@pytest.mark.parametrize("path", OTHERS)
def test_data_is_never_a_page(path: str) -> None:
    assert not is_page(path)
    assert not is_visit("GET", path, headers(VISIT))


@pytest.mark.parametrize(
    ("method", "change"),
    [
        pytest.param("POST", {}, id="form"),
        pytest.param("HEAD", {}, id="head"),
        pytest.param("GET", {"sec-fetch-dest": "iframe"}, id="frame"),
        pytest.param("GET", {"sec-fetch-dest": "object"}, id="object"),
        pytest.param("GET", {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}, id="script"),
        pytest.param("GET", {"sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}, id="fetch"),
        pytest.param("GET", {"origin": "https://evil.example"}, id="foreign-origin"),
        pytest.param("GET", {"origin": "null"}, id="sandboxed"),
    ],
)
def test_only_a_window_of_its_own_that_goes_to_a_page_is_a_visit(method: str, change: dict[str, str]) -> None:
    assert not is_visit(method, "/katib/", headers({**VISIT, **change}))
