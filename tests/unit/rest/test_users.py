"""Behind a gateway: whom the header names, and that nobody else is answered."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from katib.doors.rest.guard import OPEN_PATHS
from katib.doors.rest.server import Server
from katib.errors import InvalidError
from katib.service.tuning.users import (
    LONGEST_NAME,
    MOST_GROUPS,
    USER_HEADER,
    Gateway,
    UnknownUserError,
    User,
    UserHeaders,
)
from tests.support.page_routes import rest_paths
from tests.support.tuning import MemoryTuningService, document

LIST = "/api/v1/experiments"
ALICE, BOB = "alice@example.com", "bob@example.com"
NAME = USER_HEADER.encode()

Headers = list[tuple[bytes, bytes]]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(b"alice@example.com", "alice@example.com", id="address"),
        pytest.param("Zoë Müller".encode(), "Zoë Müller", id="words"),
        pytest.param(b"  alice \t", "alice", id="white-space-of-http-around-it"),
        pytest.param(b"a" * LONGEST_NAME, "a" * LONGEST_NAME, id="longest"),
        pytest.param(b"system:serviceaccount:team:robot", "system:serviceaccount:team:robot", id="program"),
    ],
)
def test_the_header_names_the_user(value: bytes, expected: str) -> None:
    assert UserHeaders().user_of([(b"host", b"x"), (NAME, value)]) == User(expected)


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        pytest.param([], "is missing", id="absent"),
        pytest.param([(NAME, b"")], "names no user", id="empty"),
        pytest.param([(NAME, b" \t ")], "names no user", id="blank"),
        pytest.param([(NAME, b"alice"), (NAME, b"bob")], "more than once", id="doubled"),
        pytest.param([(NAME, b"alice"), (NAME, b"alice")], "more than once", id="doubled-and-equal"),
        pytest.param([(NAME, b"alice"), (b"KubeFlow-UserID", b"bob")], "more than once", id="other-case"),
        pytest.param([(NAME, b""), (NAME, b"bob")], "more than once", id="doubled-with-empty"),
        pytest.param([(NAME, b"alice, bob")], "holds no name", id="joined-by-a-proxy"),
        pytest.param([(NAME, b"a" * (LONGEST_NAME + 1))], "holds no name", id="overlong"),
        pytest.param([(NAME, b"ali\x00ce")], "holds no name", id="null"),
        pytest.param([(NAME, b"ali\tce")], "holds no name", id="tab"),
        pytest.param([(NAME, b"alice\nbob")], "holds no name", id="line-break"),
        pytest.param([(NAME, "ali\u202ece".encode())], "holds no name", id="turned-around"),
        pytest.param([(NAME, "\u00a0alice".encode())], "holds no name", id="wide-space-before"),
        pytest.param([(NAME, b"ali\xffce")], "is not UTF-8", id="not-utf-8"),
        pytest.param([(NAME, b"system:admin")], "Kubernetes' own", id="reserved"),
        pytest.param([(NAME, b"system:node:n1")], "Kubernetes' own", id="node"),
        pytest.param([(NAME, b"system:serviceaccount:team")], "Kubernetes' own", id="half-a-service-account"),
        pytest.param([(b"kubeflow_userid", b"alice")], "is missing", id="other-name"),
    ],
)
def test_what_names_nobody_for_certain_is_refused(headers: Headers, message: str) -> None:
    with pytest.raises(UnknownUserError, match=message):
        UserHeaders().user_of(headers)


def test_the_prefix_is_taken_off_once() -> None:
    assert UserHeaders(prefix="accounts.google.com:").user_of([(NAME, b"accounts.google.com:alice")]) == User("alice")


@pytest.mark.parametrize(
    "value",
    [b"alice", b"Accounts.google.com:alice", b"accounts.google.com:", b"accounts.google.com:system:admin"],
    ids=["without", "other-case", "nothing-behind-it", "reserved-behind-it"],
)
def test_a_name_without_the_prefix_is_refused(value: bytes) -> None:
    with pytest.raises(UnknownUserError):
        UserHeaders(prefix="accounts.google.com:").user_of([(NAME, value)])


def test_groups_are_read_only_where_their_header_is_configured_and_never_those_of_kubernetes() -> None:
    headers = [(NAME, b"alice"), (b"kubeflow-groups", b"staff, interns,,staff")]

    assert UserHeaders().user_of(headers) == User("alice")
    assert UserHeaders(groups="Kubeflow-Groups").user_of(headers) == User("alice", ("staff", "interns"))
    assert UserHeaders(groups="kubeflow-groups").user_of(headers[:1]) == User("alice")

    headers = [(NAME, b"alice"), (b"groups", b"system:masters,staff")]

    assert UserHeaders(groups="groups").user_of(headers).groups == ("staff",)


@pytest.mark.parametrize(
    "values",
    [[b"staff", b"admins"], [b",".join(b"%d" % n for n in range(MOST_GROUPS + 1))], [b"a\x00b"], [b"\xff"]],
    ids=["doubled", "too-many", "control-character", "not-utf-8"],
)
def test_groups_that_no_gateway_writes_are_refused(values: list[bytes]) -> None:
    with pytest.raises(UnknownUserError):
        UserHeaders(groups="groups").user_of([(NAME, b"alice"), *((b"groups", value) for value in values)])


@pytest.mark.parametrize(("field", "option"), [("user", "--user-header"), ("groups", "--groups-header")])
def test_a_header_that_cannot_be_is_bad_input(field: str, option: str) -> None:
    with pytest.raises(InvalidError) as caught:
        UserHeaders(**{field: "kubeflow userid"})

    assert [(error.path, error.origin) for error in caught.value.errors] == [(option, "header-name")]


# --- the server -------------------------------------------------------------------------------------------------------


@pytest.fixture
def services() -> dict[str, MemoryTuningService]:
    """Two users, each with an experiment of the user's name."""
    services = {user: MemoryTuningService() for user in (ALICE, BOB)}
    for user, service in services.items():
        service.submit(document(user.partition("@")[0]), source="demo.yaml")
    return services


@pytest.fixture
def gateway(services: dict[str, MemoryTuningService]) -> Gateway:
    return Gateway(UserHeaders(), lambda user: services[user.name])


@pytest.fixture(scope="module")
def current() -> dict[str, MemoryTuningService]:
    """The services of the test that runs, behind the one server of this module."""
    return {}


@pytest.fixture(scope="module")
def shared_server(current: dict[str, MemoryTuningService]) -> Iterator[Server]:
    with Server(Gateway(UserHeaders(), lambda user: current[user.name]), host="127.0.0.1", port=0) as running:
        yield running


@pytest.fixture
def server(
    shared_server: Server, current: dict[str, MemoryTuningService], services: dict[str, MemoryTuningService]
) -> Server:
    current.update(services)
    return shared_server


@pytest.fixture(scope="module")
def shared_http(shared_server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_server.url, trust_env=False) as client:
        yield client


@pytest.fixture
def http(server: Server, shared_http: httpx.Client) -> httpx.Client:
    return shared_http


def names(answer: httpx.Response) -> list[str]:
    return [item["metadata"]["name"] for item in answer.json()["items"]]


@pytest.mark.parametrize("header", ["kubeflow-userid", "Kubeflow-UserID", "KUBEFLOW-USERID"])
def test_each_user_is_answered_by_a_service_of_its_own(http: httpx.Client, header: str) -> None:
    assert names(http.get(LIST, headers={header: ALICE})) == ["alice"]
    assert names(http.get(LIST, headers={header: BOB})) == ["bob"]


ROUTES = [
    (method.upper(), path) for path, methods in rest_paths().items() for method in methods if path not in OPEN_PATHS
]


@pytest.mark.parametrize(
    ("method", "path"), [*ROUTES, ("GET", "/docs"), ("GET", "/openapi.json"), ("GET", "/nowhere")], ids=str
)
def test_without_a_user_no_route_answers(http: httpx.Client, method: str, path: str) -> None:
    answer = http.request(method, path)

    assert (answer.status_code, answer.json()["reason"]) == (401, "Unauthorized")
    assert "kubeflow-userid" in answer.json()["detail"]


def test_health_needs_no_user(http: httpx.Client) -> None:
    assert http.get("/healthz").json()["status"] == "ok"


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(["kubeflow-userid: " + ALICE, "kubeflow-userid: " + BOB], id="doubled"),
        pytest.param(["Kubeflow-UserID: " + BOB, "kubeflow-userid: " + ALICE], id="other-case"),
        pytest.param(["kubeflow-userid: ", "kubeflow-userid: " + BOB], id="empty-and-forged"),
        pytest.param(["kubeflow-userid: " + ALICE + "," + BOB], id="joined"),
    ],
)
def test_a_forged_header_beside_the_gateways_own_is_refused(server: Server, lines: list[str]) -> None:
    """Sent byte for byte, since clients tidy up what they send."""
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=60) as raw:
        request = [f"GET {LIST} HTTP/1.1", f"Host: {place.netloc}", "Connection: close", *lines, "", ""]
        raw.sendall("\r\n".join(request).encode())
        answer = b"".join(iter(lambda: raw.recv(65536), b""))

    assert answer.startswith(b"HTTP/1.1 401 ")


def test_where_no_gateway_is_configured_the_header_says_nothing() -> None:
    service = MemoryTuningService()
    service.submit(document("shared"), source="demo.yaml")
    with Server(service, host="127.0.0.1", port=0, token="secret") as server:
        told = [
            httpx.get(server.url + LIST, headers={**headers, USER_HEADER: ALICE}, trust_env=False).status_code
            for headers in ({}, {"authorization": "Bearer secret"})
        ]

    assert told == [401, 200]


def test_beyond_this_machine_the_gateway_has_to_send_a_token(gateway: Gateway) -> None:
    """Else any pod that reaches the port could name any user."""
    with pytest.raises(InvalidError) as caught:
        Server(gateway, host="0.0.0.0", port=0)

    assert [error.origin for error in caught.value.errors] == ["token-required"]
    assert "past the gateway" in str(caught.value)


def test_with_a_token_both_are_needed(gateway: Gateway) -> None:
    token, user = {"authorization": "Bearer secret"}, {USER_HEADER: ALICE}
    with Server(gateway, host="0.0.0.0", port=0, token="secret") as server:
        url = server.url.replace("0.0.0.0", "127.0.0.1") + LIST
        told = [httpx.get(url, headers=h, trust_env=False).status_code for h in (user, token, {**token, **user})]

    assert told == [401, 401, 200]


def test_any_name_of_the_gateway_will_do_but_no_page_of_another_site(http: httpx.Client) -> None:
    headers = {USER_HEADER: ALICE, "host": "kubeflow.example"}

    assert http.get(LIST, headers={**headers, "origin": "https://kubeflow.example"}).status_code == 200
    assert http.get(LIST, headers={**headers, "origin": "https://evil.example"}).json()["reason"] == "CrossSite"
    assert http.get(LIST, headers={**headers, "sec-fetch-site": "same-site"}).json()["reason"] == "CrossSite"
