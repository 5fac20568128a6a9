"""Readiness of services: detected by a health check, without a poll interval."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import grpc

from katib.engine.algorithm_services.plan import ServiceId, ServicePlan
from katib.errors import Backoff, KatibError, UnavailableError, one_line
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


# Phases, states and timeouts of services.

User = tuple[str, str]
"""Namespace and name of an experiment."""

Listener = Callable[[str, str], None]
"""Receives namespace and name of an experiment to reconcile. Called from any thread; must return at once."""


class ServicePhase(Enum):
    """Phase in a service's life."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ServiceTiming:
    """Timeouts and intervals, in seconds.

    Attributes:
        call: Deadline of each call: Katib's value.
        start: Timeout of the start of a new process. Cold imports of the largest libraries take tens of seconds.
        stop: Time between SIGTERM and SIGKILL.
        idle: How long a service without users is kept. Longer than the pause between two experiments in a notebook.
        restart: Back-off before a restart, by the number of consecutive processes without a response.
        settled: A process that lived longer than this resets that number.
        max_failures: The number of consecutive processes without a response after which a service is given up, or, if
            the cause may pass, its users are notified.
    """

    call: float = 60.0
    start: float = 60.0
    stop: float = 2.0
    idle: float = 60.0
    restart: Backoff = Backoff(0.1, 10.0)
    settled: float = 60.0
    max_failures: int = 3

    def of(self, plan: ServicePlan) -> ServiceTiming:
        """Return the times of one service, which may override some."""
        return replace(
            self,
            call=self.call if plan.call_seconds is None else plan.call_seconds,
            start=self.start if plan.start_seconds is None else plan.start_seconds,
        )


@dataclass(frozen=True, slots=True)
class ServiceState:
    """State of one service, as shown by `katib why`.

    Attributes:
        state: `starting`, `ready`, or `failing` during a crash loop and after it was given up.
        attempts: Consecutive processes without a response, including the present one.
        last_error: How the last of them ended; empty if there was none.
        address: Its address if Katib does not start it, otherwise the command that starts it.
    """

    service: ServiceId
    state: str
    attempts: int = 1
    last_error: str = ""
    address: str = ""
