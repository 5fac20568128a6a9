"""One GET request of bounded time and size, whatever the server does."""

from __future__ import annotations

import http.client
import io
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

SCRAPE_SECONDS = 2.0
"""Timeout of a whole scrape: connecting, waiting and reading."""

MAX_SCRAPE_BYTES = 4 << 20

_CHUNK_BYTES = 64 << 10
_ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
_OK = 200
DEFAULT_PORT = 8080
LOCAL_HOST = "localhost"


class ScrapeError(Exception):
    """A failed scrape, with its reason as an unfinished sentence about the endpoint.

    Attributes:
        is_unreachable: Whether no program listens there, as before and after the program.
    """

    def __init__(self, text: str, *, is_unreachable: bool = False) -> None:
        super().__init__(text)
        self.is_unreachable = is_unreachable


@dataclass(frozen=True, slots=True)
class MetricsEndpoint:
    """The metrics endpoint of a program: the `httpGet` of a collector's source.

    Attributes:
        host: Host of the server; by default this machine or this pod.
        is_tls: Whether to use TLS. Certificates are not verified, as in Kubernetes' probes.
    """

    host: str = LOCAL_HOST
    port: int = DEFAULT_PORT
    path: str = "/metrics"
    is_tls: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, http_get: Mapping[str, Any], port: int | None = None) -> MetricsEndpoint:
        """Read an `httpGet`; missing or wrong parts have their defaults.

        Args:
            http_get: As in a probe of Kubernetes.
            port: Port that overrides the given one.
        """
        given = str(http_get.get("port") or "")
        headers = http_get.get("httpHeaders")
        return cls(
            host=str(http_get.get("host") or LOCAL_HOST),
            port=port or (int(given) if given.isdecimal() and given.isascii() else DEFAULT_PORT),
            path=str(http_get.get("path") or "/metrics"),
            is_tls=str(http_get.get("scheme") or "").upper() == "HTTPS",
            headers={
                str(header["name"]): str(header.get("value", ""))
                for header in (headers if isinstance(headers, list) else ())
                if isinstance(header, dict) and header.get("name")
            },
        )

    @classmethod
    def of_text(cls, text: str) -> MetricsEndpoint:
        """Read an `httpGet` from JSON; other text gives the defaults."""
        try:
            found = json.loads(text or "{}")
        except ValueError:
            found = {}
        return cls.of(found if isinstance(found, dict) else {})

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}{self.path}"


@dataclass(frozen=True, slots=True)
class ScrapeResponse:
    """The response of a server."""

    body: bytes
    content_type: str


def scrape(endpoint: MetricsEndpoint, seconds: float = SCRAPE_SECONDS) -> ScrapeResponse:
    """Scrape an endpoint. Redirects are not followed.

    Raises:
        ScrapeError: It does not answer in time, answers with an error, or with too much data.
    """
    deadline = time.monotonic() + seconds
    connection = _connection(endpoint, seconds)
    try:
        connection.connect()
    except OSError as error:
        connection.close()
        raise ScrapeError(f"cannot be reached ({error.strerror or error})", is_unreachable=True) from error
    sock = connection.sock
    try:
        connection.sock = _BoundedSocket(sock, lambda: deadline - time.monotonic())
        connection.request("GET", endpoint.path, headers={"Accept": _ACCEPT, "Connection": "close", **endpoint.headers})
        response = connection.getresponse()
        if response.status != _OK:
            raise ScrapeError(f"answers {response.status}")
        return ScrapeResponse(_body(response), response.headers.get("Content-Type") or "")
    except TimeoutError as error:
        raise ScrapeError(f"does not answer within {seconds:g} s") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        is_gone = isinstance(error, OSError)
        raise ScrapeError(
            f"does not answer well ({str(error) or type(error).__name__})", is_unreachable=is_gone
        ) from error
    finally:
        sock.close()


def _connection(endpoint: MetricsEndpoint, seconds: float) -> http.client.HTTPConnection:
    if not endpoint.is_tls:
        return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=seconds)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(endpoint.host, endpoint.port, timeout=seconds, context=context)


def _body(response: http.client.HTTPResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := response.read1(_CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > MAX_SCRAPE_BYTES:
            raise ScrapeError(f"answers with more than {MAX_SCRAPE_BYTES >> 20} MB")
    return b"".join(parts)


class _BoundedSocket:
    """A socket for `http.client` whose calls together end in time."""

    def __init__(self, sock: Any, seconds_left: Callable[[], float]) -> None:
        self._sock = sock
        self._seconds_left = seconds_left

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_BoundedReader(self))

    def sendall(self, data: bytes) -> None:
        self.timed().sendall(data)

    def timed(self) -> Any:
        left = self._seconds_left()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._sock

    def close(self) -> None:
        """Do nothing: the creator closes the socket; `http.client` would do so before the answer is read."""


class _BoundedReader(io.RawIOBase):
    def __init__(self, sock: _BoundedSocket) -> None:
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return int(self._sock.timed().recv_into(buffer))
