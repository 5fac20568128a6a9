"""When is a service ready: when it answers a health check, and not a poll interval later."""

from __future__ import annotations

import socket
from concurrent.futures import Future
from typing import TYPE_CHECKING

import grpc

from katib.errors import KatibError, UnavailableError, one_line
from katib.wire.rpc._generated import health_pb2

if TYPE_CHECKING:
    from katib.wire.rpc.connection import Connection
    from katib.wire.rpc.errors import Metadata, Status

_CHECK = "/grpc.health.v1.Health/Check"
_CHECK_SECONDS = 1.0
_CONNECT_SECONDS = 1.0

# No health service, or one that does not know the name: then an answer is all there is to go by.
_ANSWERS = frozenset({grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND})


def accepts_connections(address: str) -> bool:
    """Return whether a process listens at `unix:/path` or `127.0.0.1:port`.

    gRPC could check this too, but after a failed attempt it waits too long for the next.
    """
    is_path = address.startswith("unix:")
    host, _, port = address.rpartition(":")
    target: str | tuple[str, int] = port if is_path else (host, int(port))
    with socket.socket(socket.AF_UNIX if is_path else socket.AF_INET) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(target)
        except OSError:
            return False
    return True


def is_serving(connection: Connection, service: str) -> bool:
    """Ask a service that accepts connections whether it serves; returns within a second or so."""
    try:
        return ask_health(connection, service).result()
    except KatibError:
        return False


def ask_health(connection: Connection, service: str) -> Future[bool]:
    """Ask a service whether it serves; the future holds the answer, or why there is none, within a second or so."""
    request = health_pb2.HealthCheckRequest(service=service).SerializeToString()
    return connection.call(_CHECK, request, _says_serving, on_error=_answered, timeout_seconds=_CHECK_SECONDS)


def _says_serving(reply: bytes, _metadata: Metadata) -> bool:
    status = health_pb2.HealthCheckResponse.FromString(reply).status
    return bool(status == health_pb2.HealthCheckResponse.SERVING)


def _answered(status: Status) -> bool:
    if status.code in _ANSWERS:
        return True
    raise UnavailableError(one_line(status.details) or status.code.name)
