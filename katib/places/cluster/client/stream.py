"""Streaming responses: the lines of a watch or of a pod's log, as they arrive."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import urllib3

from katib.errors import KatibError, UnavailableError

_CHUNK_BYTES = 1 << 16


class ResponseStream:
    """Lines of one streaming response. For one reader thread; `close` from any thread ends it at once.

    Args:
        subject: Name of the source in messages.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse, subject: str) -> None:
        self._response = response
        self._subject = subject
        self._lock = threading.Lock()
        self._closed = False
        self._is_read = False
        self._failure: KatibError | None = None

    @property
    def closed(self) -> bool:
        return self._closed

    def lines(self) -> Iterator[bytes]:
        """Yield each line without its end, until the server or `close` ends the stream. Raises as `chunks`."""
        rest = bytearray()
        for chunk in self.chunks():
            rest += chunk
            end = rest.rfind(b"\n")
            if end >= 0:
                complete = bytes(rest[:end])
                del rest[: end + 1]
                yield from complete.split(b"\n")
        if rest:
            yield bytes(rest)

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes as they arrive, until the server or `close` ends the stream.

        Raises:
            UnavailableError: The connection broke, or was silent for longer than the read timeout.
            KatibError: The error passed to `fail`.
        """
        with self._lock:
            is_open = not self._closed
            self._is_read = is_open
        if is_open:
            try:
                yield from self._response.stream(_CHUNK_BYTES, decode_content=True)
            except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as error:
                # http.client raises the last two for a socket that was closed concurrently.
                if not self._closed:
                    raise UnavailableError(
                        f"{self._subject}: the stream broke off, {type(error).__name__}; it is opened again later"
                    ) from error
            finally:
                self._release()
        if self._failure is not None:
            raise self._failure

    def fail(self, error: KatibError) -> None:
        """End the stream with an error, raised in its reader."""
        self._failure = error
        self.close()

    def close(self) -> None:
        """End the stream and wake its reader. Idempotent."""
        with self._lock:
            self._closed = True
            if not self._is_read:  # and never will be: there is no reader to close the connection
                self._response.close()
                return
            connection = socket_of(self._response)
            if connection is not None:
                with contextlib.suppress(OSError):
                    # Bypasses the TLS layer, whose own shutdown may be used by one thread only.
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def _release(self) -> None:
        """Close the connection; reuse is not worthwhile, since most streams end before their response does."""
        with self._lock:
            self._closed = True
            self._response.close()


def socket_of(response: Any) -> socket.socket | None:
    connection = getattr(response, "connection", None)
    found = getattr(connection, "sock", None)
    if found is None:  # with `Connection: close`, only the response's file object holds the socket
        raw = getattr(getattr(getattr(response, "_fp", None), "fp", None), "raw", None)
        found = getattr(raw, "_sock", None)
    return found if isinstance(found, socket.socket) else None
