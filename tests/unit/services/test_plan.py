from __future__ import annotations

import sys
from pathlib import Path

import pytest

from katib.services.plan import ServiceId, ServicePlan, own_plan, resolve_command

SOCKET = Path("/run/1.sock")


def test_our_own_services_listen_on_the_socket() -> None:
    command, address = resolve_command(own_plan(ServiceId("tpe")), SOCKET)

    assert command[:3] == [sys.executable, "-m", "suggestion_services"]
    assert command[3:] == ["--algorithm", "tpe", "--address", "unix:/run/1.sock"]
    assert address == "unix:/run/1.sock"


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
