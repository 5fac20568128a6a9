"""Readiness of services: detected by a health check, without a poll interval."""

from __future__ import annotations

import socket
from concurrent.futures import Future
from typing import TYPE_CHECKING

import grpc

from katib.errors import KatibError, UnavailableError, one_line
from katib.wire.rpc._generated import health_pb2

if TYPE_CHECKING:
    from katib.wire.rpc.connection import LazyChannel
    from katib.wire.rpc.errors import CallStatus, Metadata

_CHECK = "/grpc.health.v1.Health/Check"
_CHECK_SECONDS = 1.0
_CONNECT_SECONDS = 1.0

# Without a health service, or if it does not know the name, any response counts.
_ANSWERS = frozenset({grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND})


def accepts_connections(address: str) -> bool:
    """Return whether a process listens at `unix:/path` or `127.0.0.1:port`.

    gRPC could check this too, but waits too long after a failed attempt.
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


def is_serving(connection: LazyChannel, service: str) -> bool:
    """Return whether a service that accepts connections serves, within about a second."""
    try:
        return ask_health(connection, service).result()
    except KatibError:
        return False


def ask_health(connection: LazyChannel, service: str) -> Future[bool]:
    """Send a health check; the future holds the result, or the error, within about a second."""
    request = health_pb2.HealthCheckRequest(service=service).SerializeToString()
    return connection.call(_CHECK, request, _says_serving, on_error=_answered, timeout_seconds=_CHECK_SECONDS)


def _says_serving(reply: bytes, _metadata: Metadata) -> bool:
    status = health_pb2.HealthCheckResponse.FromString(reply).status
    return bool(status == health_pb2.HealthCheckResponse.SERVING)


def _answered(status: CallStatus) -> bool:
    if status.code in _ANSWERS:
        return True
    raise UnavailableError(one_line(status.details) or status.code.name)
