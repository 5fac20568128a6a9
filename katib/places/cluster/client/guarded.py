"""Connection for one user: each request is authorized before it is sent, each stream repeatedly."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Self

import urllib3

from katib.errors import KatibError
from katib.places.cluster.client.connection import ApiConnection, Hook, HttpRequest
from katib.places.cluster.client.requests import RequestInfo, request_info
from katib.places.cluster.client.stream import ResponseStream

Permit = Callable[[RequestInfo], None]
"""Returns if a request is permitted, and raises otherwise."""


class GuardedConnection(ApiConnection):
    """Connection for one user, sending requests with the credentials of a shared connection.

    Every request is authorized, whichever method sends it; only discovery is open to all users. Cheap to create: one
    per request of a user is fine. Closing it leaves the shared connection open.
    """

    def __init__(self, connection: ApiConnection, permit: Permit, streams: OpenStreams) -> None:
        # The base is not initialised: pool, credentials and observers are those of the shared connection.
        self.namespace = connection.namespace
        self.discovery = connection.discovery
        self._shared = connection
        self._permit = permit
        self._streams = streams

    @property
    def host(self) -> str:
        return self._shared.host

    def observe(self, hook: Hook) -> None:
        self._shared.observe(hook)

    def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, read_timeout_seconds: float | None = None
    ) -> ResponseStream:
        """Open a streaming response that is closed when its permission ends."""
        stream = super().stream(path, query=query, read_timeout_seconds=read_timeout_seconds)
        info = request_info("GET", path, query)
        self._streams.add(stream, lambda: self._permit(info))
        return stream

    def close(self) -> None:
        """Do nothing: the shared connection belongs to its owner."""

    def _answer(self, request: HttpRequest) -> urllib3.BaseHTTPResponse:
        self._permit(request.info)
        return self._shared._answer(request)  # noqa: SLF001 - of the same class


class OpenStreams:
    """Open streams, closed when their permission is withdrawn. Thread-safe. A context manager that stops the checks.

    Args:
        look_seconds: Interval between two checks of a stream.
    """

    def __init__(self, look_seconds: float) -> None:
        self._look_seconds = look_seconds
        self._lock = threading.Lock()
        self._checks: weakref.WeakKeyDictionary[ResponseStream, Callable[[], None]] = weakref.WeakKeyDictionary()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="open-streams", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def add(self, stream: ResponseStream, check: Callable[[], None]) -> None:
        """Check a stream until it ends; an error raised by `check` ends it."""
        with self._lock:
            self._checks[stream] = check

    def _run(self) -> None:
        while not self._stopping.wait(self._look_seconds):
            for stream, check in self._open():
                try:
                    check()
                except KatibError as error:
                    stream.fail(error)

    def _open(self) -> list[tuple[ResponseStream, Callable[[], None]]]:
        """Return the open streams, and forget the closed ones."""
        with self._lock:
            for stream in [stream for stream in self._checks if stream.closed]:
                del self._checks[stream]
            return list(self._checks.items())
