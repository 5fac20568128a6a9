"""What the client makes of servers that are not there, or are not ours."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from katib.errors import (
    ERROR_CODES,
    FieldError,
    InternalError,
    InvalidError,
    KatibError,
    NotFoundError,
    UnavailableError,
)
from katib.rest.client import HttpTuningService
from katib.rest.problems import error_of, problem_of
from katib.rest.server import Server
from tests.support.tuning import FakeTuningService, document


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


def test_following_nobody_is_unavailable_too() -> None:
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


def test_a_server_on_this_machine_learns_where_the_file_is(
    service: FakeTuningService, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths of a trial's command start from there."""
    told: list[str] = []
    submit = service.submit
    monkeypatch.setattr(service, "submit", lambda text, **kw: (told.append(kw["source"]), submit(text, **kw))[1])
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
        client.get("Experiment", "default", "../../algorithms")
