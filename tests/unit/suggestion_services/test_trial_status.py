"""A stopped trial is told to the API server, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest

from katib.errors import ForbiddenError, KatibError, NotFoundError, UnavailableError
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc.services import calls_over
from suggestion_services.early_stopping.trial_status import TrialStatuses, in_cluster, stopped_conditions
from suggestion_services.medianstop import MedianStop
from tests.support.golden import Golden
from tests.support.refusals import refusal
from tests.support.services import serving

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PATH = "/apis/kubeflow.org/v1beta1/namespaces/team/trials/demo-1"
RUNNING = {"type": "Running", "status": "True", "reason": "TrialRunning", "message": "Trial is running", "ours": "kept"}
STOPPED = {
    "type": "EarlyStopped",
    "status": "True",
    "reason": "TrialEarlyStopped",
    "message": "Trial is early stopped",
    "lastUpdateTime": "2026-01-02T03:04:05Z",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}
Refuse = Callable[[str, int], tuple[int, str] | None]


class ApiServer:
    """An API server with one trial in it; differs from the real one in knowing two requests and nothing else."""

    def __init__(self) -> None:
        self.conditions: list[dict[str, Any]] = [RUNNING]
        self.version = 7
        self.requests: list[tuple[str, str]] = []
        self.tokens: list[str] = []
        self.refuse: Refuse = lambda _method, _count: None

    def answer(self, method: str, path: str, token: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.requests.append((method, path))
        self.tokens.append(token)
        refusal = self.refuse(method, len(self.requests))
        if refusal is not None:
            return refusal[0], {"kind": "Status", "message": refusal[1]}
        if path.removesuffix("/status") != PATH:
            return 404, {"kind": "Status", "message": f'trials "{path.rpartition("/")[2]}" not found'}
        if method == "PATCH":
            if body["metadata"]["resourceVersion"] != str(self.version):
                return 409, {"kind": "Status", "message": "the object has been modified"}
            self.conditions = body["status"]["conditions"]
            self.version += 1
        return 200, {
            "metadata": {"name": "demo-1", "resourceVersion": str(self.version)},
            "status": {"conditions": self.conditions},
        }


@contextmanager
def listening(server: ApiServer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            code, content = server.answer(self.command, self.path, self.headers["Authorization"], body)
            data = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_PATCH = do_GET  # noqa: N815 - the library's name

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()
        thread.join()


class Bench:
    def __init__(self, server: ApiServer, address: str, account: Path) -> None:
        self.server = server
        self.account = account
        self.pauses: list[float] = []
        (account / "namespace").write_text("team")
        (account / "token").write_text("first\n")
        self.statuses = TrialStatuses(address, account, now=lambda: NOW, pause=self.pauses.append)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    server = ApiServer()
    with listening(server) as address:
        yield Bench(server, address, tmp_path)


def test_a_running_trial_gets_the_condition_and_keeps_the_others(bench: Bench) -> None:
    bench.statuses.stop("demo-1")

    assert bench.server.conditions == [RUNNING, STOPPED]
    assert bench.server.requests == [("GET", PATH), ("PATCH", f"{PATH}/status")]


def test_stopping_twice_writes_once(bench: Bench) -> None:
    bench.statuses.stop("demo-1")
    bench.statuses.stop("demo-1")

    assert bench.server.conditions == [RUNNING, STOPPED]
    assert [method for method, _ in bench.server.requests] == ["GET", "PATCH", "GET"]


def test_a_conflict_is_decided_anew(bench: Bench) -> None:
    """The controller writes between our read and our write; what it wrote stays."""

    def controller(method: str, count: int) -> None:
        if (method, count) == ("PATCH", 2):
            bench.server.version += 1
            bench.server.conditions = [*bench.server.conditions, {"type": "Other", "status": "True"}]

    bench.server.refuse = controller
    bench.statuses.stop("demo-1")

    assert [condition["type"] for condition in bench.server.conditions] == ["Running", "Other", "EarlyStopped"]
    assert bench.pauses == [0.1]


def test_a_trial_that_is_over_is_left_alone(bench: Bench) -> None:
    ended = [RUNNING, {"type": "Succeeded", "status": "True", "reason": "TrialSucceeded"}]
    bench.server.conditions = ended
    bench.statuses.stop("demo-1")

    assert bench.server.conditions == ended


def test_a_renewed_token_is_used(bench: Bench) -> None:
    bench.statuses.stop("demo-1")
    (bench.account / "token").write_text("second")
    bench.statuses.stop("demo-1")

    assert bench.server.tokens == ["Bearer first"] * 2 + ["Bearer second"]


@pytest.mark.parametrize(
    ("code", "error", "attempts"),
    [(403, ForbiddenError, 1), (401, ForbiddenError, 1), (500, UnavailableError, 6), (429, UnavailableError, 6)],
)
def test_what_the_api_server_refuses_is_told_in_its_words(
    bench: Bench, code: int, error: type[KatibError], attempts: int, golden: Golden
) -> None:
    bench.server.refuse = lambda _method, _count: (code, "the words of the server")

    with golden.raises(error):
        bench.statuses.stop("demo-1")
    assert len(bench.server.requests) == attempts


def test_a_passing_failure_is_overcome(bench: Bench) -> None:
    bench.server.refuse = lambda _method, count: (503, "starting") if count < 4 else None
    bench.statuses.stop("demo-1")

    assert bench.server.conditions[-1] == STOPPED
    assert bench.pauses == [0.1, 0.2, 0.4]


def test_an_unknown_trial_is_said_to_be_unknown(bench: Bench) -> None:
    with pytest.raises(NotFoundError, match='trials "demo-2" not found'):
        bench.statuses.stop("demo-2")


def test_a_server_that_is_away_is_unavailable(tmp_path: Path, golden: Golden) -> None:
    with listening(ApiServer()) as address:
        pass
    bench = Bench(ApiServer(), address, tmp_path)

    with golden.raises(UnavailableError):
        bench.statuses.stop("demo-1")


def test_a_condition_that_was_false_becomes_the_last_one() -> None:
    old = [{"type": "EarlyStopped", "status": "False", "reason": "No"}, RUNNING]

    assert stopped_conditions(old, NOW) == [RUNNING, STOPPED]


def test_outside_of_a_pod_there_is_nothing_to_write_to(tmp_path: Path) -> None:
    assert in_cluster({}, tmp_path) is None
    assert in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path) is None


@pytest.mark.parametrize(
    ("code", "expected"),
    [(None, None), (403, grpc.StatusCode.PERMISSION_DENIED), (503, grpc.StatusCode.UNAVAILABLE)],
    ids=["taken", "forbidden", "away"],
)
def test_the_service_answers_as_it_went(bench: Bench, code: int | None, expected: grpc.StatusCode | None) -> None:
    bench.server.refuse = lambda _method, _count: None if code is None else (code, "no")
    with (
        serving(early_stopping=MedianStop(bench.statuses)) as address,  # type: ignore[arg-type]
        grpc.insecure_channel(address) as channel,
    ):
        ask = calls_over(channel, pb).SetTrialStatus
        request = pb.SetTrialStatusRequest(trial_name="demo-1")
        if expected is None:
            assert ask(request, timeout=60) == pb.SetTrialStatusReply()
            assert bench.server.conditions == [RUNNING, STOPPED]
            return
        assert refusal(ask, request, timeout=60)[0] == expected
