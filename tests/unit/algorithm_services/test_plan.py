from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from katib.engine.algorithm_services import plan as plans
from katib.engine.algorithm_services.plan import ServiceId, ServicePlan, free_port, own_plan, resolve_command

SOCKET = Path("/run/1.sock")


def test_our_own_services_listen_on_sockets_that_tell_kinds_apart() -> None:
    command, address = resolve_command(own_plan(ServiceId("tpe")), SOCKET)

    assert command[:3] == [sys.executable, "-m", "suggestion_services"]
    assert command[3:] == ["--algorithm", "tpe", "--address", "unix:/run/1.sock"]
    assert address == "unix:/run/1.sock"

    command, _ = resolve_command(own_plan(ServiceId("hyperband", early_stopping=True)), SOCKET)

    assert command[3:6] == ["--algorithm", "hyperband", "--early-stopping"]


def test_a_command_with_a_port_gets_a_free_one_each_time() -> None:
    plan = ServicePlan(ServiceId("mine"), command=("serve", "--bind=0.0.0.0:{port}", "{other}"))

    (_, bind, other), address = resolve_command(plan, SOCKET)

    assert bind.removeprefix("--bind=0.0.0.0:") == address.removeprefix("127.0.0.1:")
    assert int(address.rpartition(":")[2]) > 0
    assert other == "{other}"


@pytest.mark.parametrize(
    ("service", "text"),
    [
        (ServiceId("tpe"), 'suggestion service "tpe"'),
        (ServiceId("medianstop", early_stopping=True), 'early stopping service "medianstop"'),
    ],
    ids=["suggestion", "early-stopping"],
)
def test_a_service_is_called_by_what_it_is(service: ServiceId, text: str) -> None:
    assert str(service) == text


def test_a_port_is_none_that_the_system_gives_away_itself() -> None:
    first_of_system = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports: set[int] = set()
    for _ in range(50):
        ports.add(free_port(ports))

    assert len(ports) == 50
    assert max(ports) < max(first_of_system, 32_768)


def test_a_port_that_somebody_listens_on_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        monkeypatch.setattr(plans, "_ports", lambda: range(port, port + 1))

        assert free_port() != port
