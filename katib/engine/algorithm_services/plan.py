"""Start-up of services: a command that listens at a given address, or the address of a running service."""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from katib.model.checkpoints import CHECKPOINT_ROOT_VARIABLE

SUGGESTION_HEALTH = "manager.v1beta1.Suggestion"
"""Service name in Katib's probes of a suggestion service; its Python images know no other."""


class ServiceId(NamedTuple):
    """Identity of a service: the name of its algorithm, and its kind."""

    algorithm: str
    early_stopping: bool = False

    def __str__(self) -> str:
        kind = "early stopping" if self.early_stopping else "suggestion"
        return f'{kind} service "{self.algorithm}"'

    @property
    def file_name(self) -> str:
        return f"{'early-stopping' if self.early_stopping else 'suggestion'}-{self.algorithm}"


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """Start-up plan of a service.

    Attributes:
        command: Program and arguments; `{address}` is replaced by the Unix socket to listen on (`unix:/path`), `{port}`
            by a free port of the loopback interface, `{python}` by this process's interpreter. Empty if `address` is
            given.
        directory: Working directory of the command; None for that of its log.
        environment: Added to this process's environment.
        health_service: Service name for `grpc.health.v1.Health`.
        start_seconds: Timeout of the start of a new process; None for the default.
        call_seconds: Deadline of each call; None for the default.
        sends_token: Whether it sends its token when it reads metrics; only early stopping services do.
    """

    id: ServiceId
    command: tuple[str, ...] = ()
    address: str = ""
    directory: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    health_service: str = ""
    start_seconds: float | None = None
    call_seconds: float | None = None
    sends_token: bool = True


_LOOPBACK = "127.0.0.1"
_SYSTEM_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST_PORT, _USUAL_END, _TRIES = 18_000, 32_768, 100
_choice = random.SystemRandom()

_PACKAGES = str(Path(__file__).resolve().parents[3])
"""Directory of this product's packages."""


def own_plan(service: ServiceId) -> ServicePlan:
    paths = [_PACKAGES, *filter(None, [os.environ.get("PYTHONPATH")])]
    which = ["--algorithm", service.algorithm, *(["--early-stopping"] if service.early_stopping else [])]
    return ServicePlan(
        service,
        command=("{python}", "-m", "suggestion_services", *which, "--address", "{address}"),
        environment={
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            CHECKPOINT_ROOT_VARIABLE: "",  # on one machine the one that starts trials makes their folders
            "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "ERROR"),  # a connection that ends is no news
        },
    )


def resolve_command(plan: ServicePlan, socket_path: Path) -> tuple[list[str], str]:
    """Return the command with its placeholders filled in, and the address that it listens on."""
    address = f"unix:{socket_path}"
    values = {"{address}": address, "{python}": sys.executable}
    if any("{port}" in word for word in plan.command):
        port = free_port()
        address = f"127.0.0.1:{port}"
        values["{port}"] = str(port)
    return [_fill(word, values) for word in plan.command], address


def _fill(word: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        word = word.replace(placeholder, value)
    return word


def free_port(taken: Collection[int] = ()) -> int:
    """Return a free port of the loopback interface; it is not reserved, so another program may take it first.

    It is outside the range of ephemeral ports, which the system gives to connections and to servers that ask for any:
    one of these would often be in use by the time the program listens.
    """
    for _ in range(_TRIES):
        port = _choice.choice(_ports())
        if port not in taken and _is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _ports() -> range:
    """Return the ports between those that many programs use and the ephemeral ones."""
    try:
        end = int(_SYSTEM_PORTS.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        end = _USUAL_END
    return range(_FIRST_PORT, end) if end > _FIRST_PORT + _TRIES else range(_FIRST_PORT, _USUAL_END)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return False
    return True
