from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from katib.cluster.monitoring.await_ready import await_ready, is_ready


class Page(BaseHTTPRequestHandler):
    """Answers 503 to the first two questions."""

    def do_GET(self) -> None:
        self.server.asked = getattr(self.server, "asked", 0) + 1  # type: ignore[attr-defined]
        self.send_response(200 if self.server.asked > 2 else 503)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def page() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/readyz"
        server.shutdown()
        thread.join()


def test_a_page_is_waited_for_until_it_says_yes(page: str) -> None:
    pauses: list[float] = []

    assert await_ready(page, 60, sleep=pauses.append)
    assert len(pauses) == 2


def test_nobody_there_is_waited_for_no_longer_than_was_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    moments = iter((0.0, 10.0, 20.0))

    assert not await_ready(
        f"http://127.0.0.1:{port}/readyz", 15, monotonic=lambda: next(moments), sleep=lambda _seconds: None
    )


def test_a_port_is_ready_when_somebody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        assert is_ready(address)

    assert not is_ready(address)


def test_the_command_of_a_probe_says_it_by_its_exit_code(page: str) -> None:
    command = [sys.executable, "-m", "katib.cluster.monitoring.await_ready"]

    assert subprocess.run([*command, page, "30"], check=False).returncode == 0
    assert subprocess.run([*command, "tcp://127.0.0.1:1", "0"], check=False).returncode == 1
