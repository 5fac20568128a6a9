"""Clients that send a part of a request and stop: they are cut, and hold up nobody else."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse
from pathlib import Path

import httpx
import pytest

from katib.doors.rest.server import Server
from katib.wire.serving import prompt_server
from katib.wire.serving.listening import Message, Receive, Send, ServerThread, listen
from tests.support.tuning import MemoryTuningService
from tests.support.waiting import eventually

HEADER = b"POST / HTTP/1.1\r\nhost: localhost\r\n"
BODY = HEADER + b"content-length: 100\r\n\r\nabc"
NEXT = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n" + HEADER

SERVER = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from katib.wire.serving.listening import ServerThread, listen
from tests.unit.rest.test_prompt_server import answer
sockets = [listen("127.0.0.1", 0), listen("127.0.0.1", 0)]
servers = [ServerThread(answer, [one], "test", tls=tls) for one, tls in zip(sockets, (None, lambda: None))]
print(*(one.getsockname()[1] for one in sockets), flush=True)
sys.stdin.read()
"""


async def answer(scope: Message, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def serving() -> Iterator[int]:
    listening = listen("127.0.0.1", 0)
    thread = ServerThread(answer, [listening], "test")
    yield listening.getsockname()[1]
    thread.close()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(HEADER, id="half a header"),
        pytest.param(BODY, id="half a body"),
        pytest.param(NEXT, id="half a second header"),
    ],
)
def test_a_request_that_does_not_end_is_cut(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    for name in ("HEADER_SECONDS", "BODY_SECONDS"):
        monkeypatch.setattr(prompt_server, name, 0.2)
    with serving() as port, socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(sent)
        got = b""
        while part := client.recv(4096):
            got += part

    assert got.endswith(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")


def test_a_connection_that_is_kept_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(client: socket.socket, request: bytes = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n") -> tuple[int, bytes]:
        client.sendall(request)
        response = HTTPResponse(client)
        response.begin()
        return response.status, response.read()

    with serving() as port, socket.create_connection(("127.0.0.1", port), timeout=60) as kept:
        assert ask(kept) == (200, b"ok")
        monkeypatch.setattr(prompt_server, "HEADER_SECONDS", 0.2)
        with socket.create_connection(("127.0.0.1", port), timeout=60) as other:
            assert ask(other, HEADER) == (408, b"")  # the limit has passed

        assert ask(kept) == (200, b"ok")


@pytest.mark.parametrize("sent", [b"", HEADER, BODY], ids=["nothing", "half a header", "half a body"])
def test_many_half_requests_use_up_no_descriptors_and_fill_no_log(tmp_path: Path, sent: bytes) -> None:
    errors = tmp_path / "errors"
    with (
        errors.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        ) as server,
        ExitStack() as stack,
    ):
        try:
            assert server.stdout is not None
            port, encrypted = map(int, server.stdout.readline().split())
            for number in range(150):
                for at in (port, encrypted):
                    client = stack.enter_context(socket.create_connection(("127.0.0.1", at), timeout=60))
                    client.sendall(sent)
                if number % 50 == 49:
                    assert httpx.get(f"http://127.0.0.1:{port}/", timeout=60, trust_env=False).text == "ok"
            open_files = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        finally:
            server.send_signal(signal.SIGKILL)

    assert open_files < 100
    assert "Traceback" not in errors.read_text()
    assert len(errors.read_text().splitlines()) < 10


def test_an_upload_that_breaks_off_leaves_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Server(MemoryTuningService(), host="127.0.0.1", port=0) as server:
        for path in ("/api/v1/experiments", "/api/v1/namespaces/default/experiments"):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                request = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/yaml\r\n"
                client.sendall(f"{request}content-length: 1000\r\n\r\nabc".encode())
        eventually(lambda: httpx.get(f"{server.url}/healthz", trust_env=False).is_success)

    assert re.findall("Exception|Traceback", caplog.text) == []
