"""What the client makes of servers that are not there, or are not ours."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from katib.doors.rest.client import HttpTuningService
from katib.doors.rest.problems import error_of, problem_of
from katib.doors.rest.server import Server
from katib.errors import (
    ERROR_CODES,
    FieldError,
    ForbiddenError,
    InternalError,
    InvalidError,
    KatibError,
    NotFoundError,
    UnavailableError,
)
from katib.model.types import Experiment
from katib.wire.serving.certificates import issue
from tests.support.tuning import MemoryTuningService, document


@pytest.mark.parametrize("cls", ERROR_CODES, ids=lambda cls: cls.__name__)
def test_every_error_survives_the_wire(cls: type[KatibError]) -> None:
    error = cls([FieldError("a.b", "is 1", "make it 2", "rule")]) if cls is InvalidError else cls("so it is")  # type: ignore[arg-type]  # one class takes errors
    body = problem_of(error)
    again = error_of(body, body["status"])

    # The base class shares its reason with InternalError: on the other side it is a bug of the server.
    assert type(again) is (InternalError if cls is KatibError else cls)
    assert str(again) == str(error)


def test_a_foreign_exception_shows_nothing_of_itself() -> None:
    assert "secret" not in str(problem_of(ValueError("secret")))


def test_nobody_there_is_unavailable_with_a_remedy() -> None:
    with HttpTuningService("http://127.0.0.1:1") as client, pytest.raises(UnavailableError, match="katib serve"):
        client.experiments()

    with HttpTuningService("http://127.0.0.1:1") as client, pytest.raises(UnavailableError, match="katib serve"):
        next(client.changes("default", "demo"))


@pytest.fixture
def foreign_url() -> Iterator[str]:
    """Some other web server, which answers 200 with a page, and 404 under /api/v1/algorithms."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if "algorithms" in self.path else 200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *_args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_another_web_server_is_recognized(foreign_url: str) -> None:
    with HttpTuningService(foreign_url) as client:
        with pytest.raises(InternalError, match="something else than JSON"):
            client.experiments()
        with pytest.raises(NotFoundError, match="no katib server"):
            client.algorithms()


@contextmanager
def answering(status: int, headers: Mapping[str, str], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Run what stands before a server of ours and answers in its place; give its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"RBAC: access denied")

        def log_message(self, *_args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"{'https' if tls else 'http'}://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "headers", "error", "message"),
    [
        pytest.param(302, {"location": "/dex/auth"}, ForbiddenError, "wants a login; give a token", id="login-page"),
        pytest.param(401, {}, ForbiddenError, "wants a login; give a token", id="unauthorized"),
        pytest.param(403, {}, ForbiddenError, "wants a login; give a token", id="policy-of-the-mesh"),
        pytest.param(503, {}, UnavailableError, "does not reach the server; try again", id="nobody-behind-it"),
    ],
)
@pytest.mark.parametrize("follow", [False, True], ids=["call", "stream"])
def test_what_a_gateway_answers_by_itself_is_told_with_a_remedy(
    status: int, headers: dict[str, str], error: type[KatibError], message: str, follow: bool
) -> None:
    with (
        answering(status, headers) as url,
        HttpTuningService(f"{url}/katib") as client,
        pytest.raises(error, match=f"{url}/katib answers {status}: a gateway {message}"),
    ):
        _ = next(client.changes("team", "demo")) if follow else client.experiments()


def test_an_authority_of_the_environment_is_trusted_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = issue(["localhost"], datetime.now(UTC), timedelta(days=1))
    (tmp_path / "authority").write_bytes(issued.authority)
    tls = issued.certificate.context()
    with answering(200, {}, tls) as url:
        with HttpTuningService(url) as client, pytest.raises(UnavailableError, match=r"name the file .* SSL_CERT_FILE"):
            client.experiments()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority"))
        with HttpTuningService(url) as client, pytest.raises(InternalError, match="something else than JSON"):
            client.experiments()


def test_a_server_is_found_under_a_path_of_a_gateway(server: Server, service: MemoryTuningService) -> None:
    """The gateway takes the path off; what is sent goes below it."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            answer = httpx.get(server.url + self.path.removeprefix("/katib"), trust_env=False)
            self.send_response(answer.status_code)
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *_args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as gateway:
        thread = threading.Thread(target=gateway.serve_forever, args=(0.01,))
        thread.start()
        with HttpTuningService(f"http://127.0.0.1:{gateway.server_port}/katib/") as client:
            found = client.get(Experiment, "default", "demo")
        gateway.shutdown()
        thread.join()

    assert found.name == "demo"
    assert asked == ["/katib/api/v1/namespaces/default/experiments/demo"]


def test_a_server_on_this_machine_learns_where_the_file_is(
    service: MemoryTuningService, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths of a trial's command start from there."""
    told: list[str] = []
    call = service.call
    monkeypatch.setattr(service, "call", lambda request: (told.append(request.source), call(request))[1])
    (tmp_path / "new.yaml").write_text(document("new"))
    monkeypatch.chdir(tmp_path)
    with HttpTuningService(server.url) as client:
        client.submit(document("new"), source="new.yaml")

    assert told == [str(tmp_path / "new.yaml")]


def test_errors_name_the_file_as_the_caller_did(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    with HttpTuningService(server.url) as client, pytest.raises(InvalidError) as caught:
        client.validate("", source="new.yaml")

    assert [error.path for error in caught.value.errors] == ["new.yaml"]


def test_names_cannot_climb_out_of_their_path(server: Server) -> None:
    with HttpTuningService(server.url) as client, pytest.raises(KatibError):
        client.get(Experiment, "default", "../../algorithms")


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_of_dots_is_a_name_and_no_way_through_the_paths(server: Server, name: str) -> None:
    with HttpTuningService(server.url) as client, pytest.raises(InvalidError, match=r"path\.name: '\.+'"):
        client.events("Trial", "default", name)
