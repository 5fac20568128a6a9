"""A connection for a user: every request is checked for permission first, every stream repeatedly."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Self

import urllib3

from katib.errors import KatibError
from katib.places.cluster.client.connection import Connection, Hook, Outgoing
from katib.places.cluster.client.requests import RequestInfo, request_info
from katib.places.cluster.client.stream import Stream

Permit = Callable[[RequestInfo], None]
"""Returns when a request may be sent, and raises what keeps it from being sent."""


class GuardedConnection(Connection):
    """A connection for one user, whose requests are sent with the credentials of a shared one.

    Nothing is sent that was not permitted, whichever method asks for it; looking up how kinds are served is free to
    all users. Cheap to make: one for each request of a user is fine. Closing it leaves the shared one open.

    Args:
        connection: Sends the requests.
        permit: Asked before each request.
        streams: Looks after what stays open.
    """

    def __init__(self, connection: Connection, permit: Permit, streams: OpenStreams) -> None:
        # The base is not initialised: its pool, its credentials and its observers are those of the shared connection.
        self.namespace = connection.namespace
        self.discovery = connection.discovery
        self._shared = connection
        self._permit = permit
        self._streams = streams

    @property
    def host(self) -> str:
        """The server's address."""
        return self._shared.host

    def observe(self, hook: Hook) -> None:
        """Register a callback for each request of the shared connection."""
        self._shared.observe(hook)

    def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, read_timeout_seconds: float | None = None
    ) -> Stream:
        """Open an answer that goes on as long as it is permitted."""
        stream = super().stream(path, query=query, read_timeout_seconds=read_timeout_seconds)
        info = request_info("GET", path, query)
        self._streams.add(stream, lambda: self._permit(info))
        return stream

    def close(self) -> None:
        """Do nothing: the shared connection is its owner's."""

    def _answer(self, request: Outgoing) -> urllib3.BaseHTTPResponse:
        self._permit(request.info)
        return self._shared._answer(request)  # noqa: SLF001 - of the same class


class OpenStreams:
    """Streams that end when the right to them does. Thread-safe. A context manager that stops looking after them.

    Args:
        look_seconds: How often each stream is asked about again.
    """

    def __init__(self, look_seconds: float) -> None:
        self._look_seconds = look_seconds
        self._lock = threading.Lock()
        self._checks: weakref.WeakKeyDictionary[Stream, Callable[[], None]] = weakref.WeakKeyDictionary()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="open-streams", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def add(self, stream: Stream, check: Callable[[], None]) -> None:
        """Look after a stream until it ends; what `check` raises ends it with that error."""
        with self._lock:
            self._checks[stream] = check

    def _run(self) -> None:
        while not self._stopping.wait(self._look_seconds):
            for stream, check in self._open():
                try:
                    check()
                except KatibError as error:
                    stream.fail(error)

    def _open(self) -> list[tuple[Stream, Callable[[], None]]]:
        """Return the streams that are open, and forget the others."""
        with self._lock:
            for stream in [stream for stream in self._checks if stream.closed]:
                del self._checks[stream]
            return list(self._checks.items())
