"""What is served to those who watch the controller: probes of the kubelet, and Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from prometheus_client import Counter, Gauge, Histogram

from katib.monitoring import ControllerMetrics, Page


class ClusterMetrics(ControllerMetrics):
    """The counters of a controller of a cluster.

    Attributes:
        requests: Requests to the API server, by verb, resource and status: what its rights have to allow.
        api_server_answers: Whether the API server answered when it was asked last.
        reviews: How long admission reviews take.
    """

    def __init__(self) -> None:
        super().__init__()
        self.requests = Counter(
            "katib_api_requests",
            "Requests to the API server",
            ("verb", "group", "resource", "status"),
            registry=self.registry,
        )
        self.api_server_answers = Gauge(
            "katib_api_server_answers", "1 when the API server answered the last request", registry=self.registry
        )
        self.reviews = Histogram(
            "katib_admission_seconds",
            "Time that admission reviews take",
            ("webhook",),
            registry=self.registry,
        )

    def show_readiness(self, checks: Callable[[], Mapping[str, bool]]) -> None:
        """Show each check of the readiness, so that it can be seen why a controller is not ready. Once."""
        ready = Gauge("katib_ready", "1 while a check of the readiness holds", ("check",), registry=self.registry)

        def value_of(name: str) -> Callable[[], float]:
            return lambda: float(checks()[name])

        for name in checks():
            ready.labels(name).set_function(value_of(name))


class Pages:
    """Serves a few pages over HTTP, from threads. A context manager.

    Args:
        address: `host:port`, or `:port` for every address; port 0 takes a free one, `0` or nothing serves no pages.
        pages: By path.

    Raises (on entering):
        OSError: The port cannot be listened on.
    """

    def __init__(self, address: str, pages: Mapping[str, Page]) -> None:
        self._address = address
        self._pages = pages
        self._server: ThreadingHTTPServer | None = None

    @property
    def port(self) -> int:
        """The port that is listened on; 0 while none is."""
        return 0 if self._server is None else self._server.server_port

    def __enter__(self) -> Self:
        if self._address not in ("", "0"):
            host, _, port = self._address.rpartition(":")
            self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), _handler(self._pages))
            self._server.daemon_threads = True
            threading.Thread(target=self._server.serve_forever, args=(0.2,), name="pages", daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


def _handler(pages: Mapping[str, Page]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET for the pages there are."""

        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_GET(self) -> None:  # the name that http.server looks for
            """Answer one request."""
            page = pages.get(self.path.partition("?")[0])
            status, content_type, body = page() if page else (HTTPStatus.NOT_FOUND, "text/plain", b"no such page\n")
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            """Log nothing: probes come every few seconds."""

    return Handler
