"""HTTP endpoints for tests of scrapes: well-behaved ones and others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Respond = Callable[[BaseHTTPRequestHandler], None]


class Exporter:
    """An endpoint whose answer a test sets.

    Attributes:
        port: Where it listens.
        respond: Answers the next requests.
        requests: The paths that were asked for.
    """

    def __init__(self) -> None:
        exporter = self
        self.respond: Respond = lambda request: request.send_error(404)
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                exporter.requests.append(self.path)
                exporter.headers.append(dict(self.headers))
                exporter.respond(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def says(self, text: str, content_type: str = TEXT) -> None:
        """Answer with a text from now on."""
        self.respond = lambda request: _send(request, text.encode(), content_type)

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def exporter() -> Iterator[Exporter]:
    """Serve on a free port of this machine."""
    found = Exporter()
    try:
        yield found
    finally:
        found.close()


def drips(request: BaseHTTPRequestHandler) -> None:
    """Answer with a byte now and then, each in good time."""
    request.send_response(200)
    request.end_headers()
    for _ in range(600):
        try:
            request.wfile.write(b"#")
        except OSError:
            return
        time.sleep(0.05)


def floods(request: BaseHTTPRequestHandler) -> None:
    """Answer with 100 MB, or as much as is taken."""
    request.send_response(200)
    request.end_headers()
    block = b"some_metric 1\n" * 75_000
    for _ in range(100):
        try:
            request.wfile.write(block)
        except OSError:
            return


def _send(request: BaseHTTPRequestHandler, body: bytes, content_type: str) -> None:
    request.send_response(200)
    request.send_header("Content-Type", content_type)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
