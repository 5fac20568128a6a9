"""HTTP endpoints of the controller for observers: the kubelet's probes and Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http import HTTPStatus

from prometheus_client import Counter, Gauge, Histogram

from katib.engine.controllers.metrics import ControllerMetrics, Page
from katib.wire.serving.blocking import TEXT, Answer, answered_by
from katib.wire.serving.listening import ServerThread, open_socket


class ClusterMetrics(ControllerMetrics):
    """Counters of a cluster's controller.

    Attributes:
        requests: Requests to the API server by verb, resource and status, and so the rights in use.
        api_server_answers: Whether the API server answered the last request.
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
        """Export each readiness check, to show why a controller is not ready. Call once."""
        ready = Gauge("katib_ready", "1 while a check of the readiness holds", ("check",), registry=self.registry)

        def value_of(name: str) -> Callable[[], float]:
            return lambda: float(checks()[name])

        for name in checks():
            ready.labels(name).set_function(value_of(name))


@contextmanager
def serve_pages(address: str, pages: Mapping[str, Page]) -> Iterator[int]:
    """Serve a few pages over HTTP, from threads, and return the port.

    Args:
        address: `host:port`, or `:port` for every address; port 0 takes a free one, `0` or nothing serves no pages and
            returns 0.

    Raises:
        OSError: The port cannot be listened on.
    """

    def answer(path: str, _body: bytes) -> Answer:
        page = pages.get(path)
        return page() if page else (HTTPStatus.NOT_FOUND, TEXT, b"no such page\n")

    if address in ("", "0"):
        yield 0
        return
    host, _, port = address.rpartition(":")
    listening = open_socket(host.strip("[]") or None, int(port))
    taken = listening.getsockname()[1]
    with closing(ServerThread(answered_by(answer, "GET"), [listening], "pages")):
        yield taken
