"""What users may do, asked of an API server that answers what the test tells it to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from katib.errors import ForbiddenError, UnavailableError
from katib.places.cluster.client import (
    AccessReviews,
    ApiConnection,
    GuardedConnection,
    NotPermittedError,
    OpenStreams,
    RbacSubject,
    RequestInfo,
    open_connection,
    request_info,
)
from katib.places.cluster.client import reviews as reviews_module
from tests.support.golden import Golden
from tests.unit.cluster.client.scripted_server import Answer, ScriptedServer

PODS = "/api/v1/namespaces/team/pods"
TRIALS = "/apis/kubeflow.org/v1beta1/namespaces/team/trials"
READ = request_info("GET", f"{TRIALS}/a")
ALICE = RbacSubject("alice@example.com")
YES, NO = Answer(201, {"status": {"allowed": True}}), Answer(201, {"status": {"allowed": False}})


class Seconds:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_question_is_the_one_that_the_api_server_would_ask_itself(
    connection: ApiConnection, server: ScriptedServer
) -> None:
    server.script(YES)
    whole = {"verb": "get", "group": "kubeflow.org", "version": "v1beta1", "resource": "trials", "name": "a"}
    watching = {"verb": "watch", "version": "v1", "resource": "pods"}
    for path, query, expected in (
        (f"{TRIALS}/a/status", {}, {**whole, "subresource": "status"}),
        (PODS, {"watch": "true"}, watching),
    ):
        AccessReviews(connection).permit(ALICE, request_info("GET", path, query))
        spec = server.asked[-1].body["spec"]
        assert (spec["user"], spec["resourceAttributes"]) == (ALICE.name, {"namespace": "team", **expected})


@pytest.mark.parametrize(
    ("subject", "groups"),
    [
        pytest.param(ALICE, ["system:authenticated"], id="person"),
        pytest.param(RbacSubject("alice", ("staff",)), ["system:authenticated", "staff"], id="person-with-groups"),
        pytest.param(
            RbacSubject("system:serviceaccount:team:robot"),
            ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:team"],
            id="service-account",
        ),
    ],
)
def test_a_user_is_in_the_groups_of_a_login(
    connection: ApiConnection, server: ScriptedServer, subject: RbacSubject, groups: list[str]
) -> None:
    server.script(YES)
    AccessReviews(connection).permit(subject, READ)

    assert server.asked[-1].body["spec"]["groups"] == groups


@pytest.mark.parametrize(
    "status",
    [{}, {"allowed": "yes"}, {"allowed": False, "denied": True}, {"evaluationError": "role not found"}],
    ids=str,
)
def test_nothing_but_a_clear_yes_is_a_yes(
    connection: ApiConnection, server: ScriptedServer, status: Any, golden: Golden
) -> None:
    server.script(Answer(201, {"status": status}))

    with golden.raises(NotPermittedError):
        AccessReviews(connection).permit(ALICE, READ)


@pytest.mark.parametrize("answer", [YES, NO], ids=["yes", "no"])
def test_an_answer_is_remembered_for_some_seconds(
    connection: ApiConnection, server: ScriptedServer, answer: Answer
) -> None:
    server.script(answer)
    clock = Seconds()
    reviews = AccessReviews(connection, kept_seconds=5, monotonic=clock)

    def is_permitted() -> bool:
        try:
            reviews.permit(ALICE, READ)
        except NotPermittedError:
            return False
        return True

    first, clock.now = is_permitted(), clock.now + 4.9
    assert is_permitted() is first
    assert len(server.asked) == 1

    server.script(NO if answer is YES else YES)
    clock.now += 0.1
    assert is_permitted() is not first


def test_an_answer_about_one_user_or_object_says_nothing_about_another(
    connection: ApiConnection, server: ScriptedServer
) -> None:
    server.script(YES, NO, NO, NO)
    reviews = AccessReviews(connection)
    reviews.permit(ALICE, READ)

    others = [
        (RbacSubject("bob@example.com"), READ),
        (RbacSubject("alice@example.com", ("staff",)), READ),
        (ALICE, request_info("GET", f"{TRIALS}/b")),
    ]
    for subject, request in others:
        with pytest.raises(NotPermittedError):
            reviews.permit(subject, request)


def test_only_so_many_answers_are_remembered(
    connection: ApiConnection, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviews_module, "MOST_KEPT", 2)
    server.script(YES)
    reviews = AccessReviews(connection)
    for name in ("a", "b", "c", "c", "a"):
        reviews.permit(ALICE, request_info("GET", f"{TRIALS}/{name}"))

    assert [asked.body["spec"]["resourceAttributes"]["name"] for asked in server.asked] == ["a", "b", "c", "a"]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/metrics", id="no-object"),
        pytest.param(f"{PODS}/x%2F..%2F..%2F..%2Fteam2%2Fpods%2Fp", id="a-name-that-leads-elsewhere"),
        pytest.param("/api/v1/namespaces/team%2F..%2Fteam2/pods/p", id="a-namespace-that-leads-elsewhere"),
        pytest.param(f"{PODS}/..", id="up"),
        pytest.param(f"{PODS}/x%252Fy", id="quoted-twice"),
        pytest.param(f"{PODS}/x%0Ay", id="line-break"),
    ],
)
def test_what_is_not_plainly_about_objects_is_refused_without_a_question(
    connection: ApiConnection, server: ScriptedServer, path: str
) -> None:
    server.script(YES)
    with pytest.raises(NotPermittedError):
        AccessReviews(connection).permit(ALICE, request_info("GET", path))

    assert server.asked == []


def test_a_server_that_may_not_ask_is_out_of_order_and_forbids_nothing(
    connection: ApiConnection, server: ScriptedServer
) -> None:
    message = 'User "katib-server" cannot create resource "subjectaccessreviews" in API group "authorization.k8s.io"'
    server.script(Answer(403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}))

    match = r"access of alice@example\.com cannot be checked: .*katib-server may not"
    with pytest.raises(UnavailableError, match=match):
        AccessReviews(connection).permit(ALICE, READ)


# --- a connection for one user ----------------------------------------------------------------------------------------


@pytest.fixture
def streams() -> Iterator[OpenStreams]:
    with OpenStreams(look_seconds=0.02) as streams:
        yield streams


def refuse(request: RequestInfo) -> None:
    raise ForbiddenError(f"{request.verb} {request.resource}")


def test_nothing_is_sent_that_is_not_permitted(
    connection: ApiConnection, server: ScriptedServer, streams: OpenStreams
) -> None:
    """Every way of sending there is on the class, so that a new one cannot be forgotten."""
    guarded = GuardedConnection(connection, refuse, streams)
    ways: dict[str, tuple[Any, ...]] = {"request": ("GET", PODS), "pages": (PODS,), "stream": (PODS,)}
    silent = {"close", "discovery", "host", "namespace", "observe"}
    assert {name for name in dir(guarded) if not name.startswith("_")} == {*ways, *silent}

    for name, arguments in ways.items():
        with pytest.raises(ForbiddenError, match="list pods"):
            list(getattr(guarded, name)(*arguments))

    assert server.asked == []


def test_what_is_permitted_is_sent_with_our_own_credentials(
    connection: ApiConnection, server: ScriptedServer, streams: OpenStreams
) -> None:
    asked: list[RequestInfo] = []
    guarded = GuardedConnection(connection, asked.append, streams)
    guarded.request("DELETE", f"{PODS}/p")

    assert asked == [request_info("DELETE", f"{PODS}/p")]
    assert [(asked.method, asked.authorization) for asked in server.asked] == [("DELETE", "Bearer secret")]
    assert (guarded.host, guarded.namespace) == (connection.host, connection.namespace)


class _Endless(BaseHTTPRequestHandler):
    """Sends one line, then nothing more until it is told to stop."""

    protocol_version = "HTTP/1.1"
    stop = threading.Event()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"6\r\nfirst\n\r\n")
        self.wfile.flush()
        self.stop.wait(60)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[ApiConnection]:
    """A connection to a server whose every answer continues."""
    _Endless.stop.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Endless) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        scripted = ScriptedServer(listening.server_port)
        with open_connection(scripted.kubeconfig(tmp_path)) as connection:
            yield connection
        _Endless.stop.set()
        listening.shutdown()
        thread.join()


def test_a_silent_stream_ends_with_the_right_to_it(endless: ApiConnection, streams: OpenStreams) -> None:
    taken_away = threading.Event()

    def permit(request: RequestInfo) -> None:
        if taken_away.is_set():
            refuse(request)

    lines = GuardedConnection(endless, permit, streams).stream(f"{PODS}/p/log", query={"follow": "true"}).lines()
    assert next(lines) == b"first"
    taken_away.set()

    with pytest.raises(ForbiddenError, match="get pods"):
        next(lines)


def test_a_stream_is_left_alone_while_it_is_permitted_and_forgotten_when_it_is_closed(
    endless: ApiConnection, streams: OpenStreams
) -> None:
    looked = threading.Semaphore(0)
    stream = GuardedConnection(endless, lambda _request: looked.release(), streams).stream(f"{PODS}/p/log")
    lines = stream.lines()
    next(lines)
    for _ in range(5):
        assert looked.acquire(timeout=60)
    assert not stream.closed
    stream.close()

    assert list(lines) == []
    assert streams._open() == []
