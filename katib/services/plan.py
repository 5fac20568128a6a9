"""How a service comes to life: a command that listens where it is told, or an address where one listens already."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

SUGGESTION_HEALTH = "manager.v1beta1.Suggestion"
"""What Katib's probes ask a suggestion service; its Python images know no other name."""


class ServiceId(NamedTuple):
    """Which service: the name of its algorithm, and of which of the two kinds it is."""

    algorithm: str
    early_stopping: bool = False

    def __str__(self) -> str:
        kind = "early stopping" if self.early_stopping else "suggestion"
        return f'{kind} service "{self.algorithm}"'

    @property
    def file_name(self) -> str:
        """Name for files about it."""
        return f"{'early-stopping' if self.early_stopping else 'suggestion'}-{self.algorithm}"


@dataclass(frozen=True, slots=True)
class ServicePlan:
    """What to do to get a service.

    Attributes:
        id: Which service.
        command: Program and arguments; `{address}` becomes the Unix socket to listen on (`unix:/path`), `{port}` a free
            port of the loopback interface, `{python}` the interpreter that runs us. Empty when `address` is given.
        address: Where the service listens already.
        directory: Working directory of the command; None: that of its log.
        environment: Added to ours.
        health_service: What to ask `grpc.health.v1.Health` about.
    """

    id: ServiceId
    command: tuple[str, ...] = ()
    address: str = ""
    directory: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    health_service: str = ""


def own_plan(service: ServiceId) -> ServicePlan:
    """Return the plan of one of our own algorithms."""
    packages = str(Path(__file__).resolve().parents[2])
    paths = [packages, *filter(None, [os.environ.get("PYTHONPATH")])]
    return ServicePlan(
        service,
        command=("{python}", "-m", "suggestion_services", "--algorithm", service.algorithm, "--address", "{address}"),
        environment={
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONUNBUFFERED": "1",
            "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "ERROR"),  # a connection that ends is no news
        },
    )


def resolve_command(plan: ServicePlan, socket_path: Path) -> tuple[list[str], str]:
    """Return the command with its placeholders filled, and the address it is told to listen on."""
    address = f"unix:{socket_path}"
    values = {"{address}": address, "{python}": sys.executable}
    if any("{port}" in word for word in plan.command):
        port = _free_port()
        address = f"127.0.0.1:{port}"
        values["{port}"] = str(port)
    return [_fill(word, values) for word in plan.command], address


def _fill(word: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        word = word.replace(placeholder, value)
    return word


def _free_port() -> int:
    """Return a port that is free now; if another takes it first, the service exits and gets the next one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
