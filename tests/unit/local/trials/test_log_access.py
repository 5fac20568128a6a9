"""Through which door the observation log is reached, and who has its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from katib.engine.algorithm_services.plan import ServiceId, ServicePlan, own_plan
from katib.errors import ForbiddenError
from katib.model.metrics import MetricLog
from katib.places.machine.trials.log_access import ADDRESS_VARIABLE, LogServers
from katib.wire.rpc.credentials import DbManagerCredentials
from katib.wire.rpc.db_manager_client import DbManagerClient
from tests.support.observations import MemoryObservationLog

STOPPING = ServiceId("medianstop", early_stopping=True)
READING = MetricLog(datetime(2030, 1, 1, tzinfo=UTC), "loss", "0.5")


def plan(*command: str, address: str = "", sends_token: bool = True, service: ServiceId = STOPPING) -> ServicePlan:
    return ServicePlan(service, command=command, address=address, sends_token=sends_token)


@contextmanager
def doors(*plans: ServicePlan) -> Iterator[LogServers]:
    log = MemoryObservationLog()
    log.report("mine", [READING])
    log.report("other", [READING])
    made = LogServers(log, {plan.id: plan for plan in plans})  # type: ignore[arg-type]  # it is always there
    yield made
    made.close()


@contextmanager
def calling(address: str, token: str = "") -> Iterator[DbManagerClient]:
    client = DbManagerClient(address, credentials=DbManagerCredentials(token), timeout_seconds=20)
    yield client
    client.close()


def readings(client: DbManagerClient, trial: str = "mine") -> Sequence[MetricLog]:
    return client.read(trial)


@pytest.mark.parametrize(
    ("service", "is_socket"),
    [
        pytest.param(own_plan(STOPPING), True, id="ours"),
        pytest.param(plan("serve", "{address}"), True, id="given a socket"),
        pytest.param(plan("serve", "{port}"), False, id="given a port"),
        pytest.param(plan(address="unix:/run/it"), True, id="at a socket"),
        pytest.param(plan(address="stopping.internal:6788"), False, id="elsewhere"),
    ],
)
def test_a_service_that_can_is_told_the_socket(service: ServicePlan, is_socket: bool) -> None:
    with doors(service) as made:
        address = made.address_for(service)

        assert address.startswith("unix:") is is_socket
        if is_socket:
            with calling(address) as client:
                assert readings(client) == [READING]
            assert oct(Path(address.removeprefix("unix:")).stat().st_mode)[-3:] == "600"


def test_a_service_with_a_port_reads_with_the_token_of_its_environment() -> None:
    service = plan("serve", "{port}")
    with doors(service) as made:
        address, environment = made.address_for(service), made.plans[STOPPING].environment
        with calling(address, DbManagerCredentials.of(environment).token) as client:
            assert readings(client) == [READING]
            with pytest.raises(ForbiddenError):
                client.report("mine", [READING])
        with calling(address) as anyone, pytest.raises(ForbiddenError):
            readings(anyone)


def test_a_service_that_cannot_send_a_token_opens_the_log_for_reading_only() -> None:
    service = plan("serve", "{port}", sends_token=False)
    with doors(service) as made, calling(made.address_for(service)) as anyone:
        assert readings(anyone) == [READING]
        with pytest.raises(ForbiddenError):
            anyone.report("mine", [READING])


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda log: log.report("other", [READING]), id="report"),
        pytest.param(lambda log: log.read("other"), id="read"),
        pytest.param(lambda log: log.delete("mine"), id="delete"),
        pytest.param(lambda log: log.begin("mine"), id="begin"),
    ],
)
def test_a_trial_has_its_own_log_and_nothing_else(call: Callable[[DbManagerClient], object]) -> None:
    with doors() as made:
        variables = made.variables_of("mine")
        with calling(variables[ADDRESS_VARIABLE], DbManagerCredentials.of(variables).token) as client:
            client.report("mine", [READING])

            assert len(readings(client)) == 2
            with pytest.raises(ForbiddenError):
                call(client)


def test_whose_readings_were_pushed_is_notified_when_they_are_stored() -> None:
    with doors() as made:
        stored: list[str] = []
        variables = made.variables_of("mine")
        made.on_stored = stored.append
        with calling(variables[ADDRESS_VARIABLE], DbManagerCredentials.of(variables).token) as client:
            client.report("mine", [READING])
            with pytest.raises(ForbiddenError):
                client.report("other", [READING])

    assert stored == ["mine"]


def test_a_trial_that_has_ended_reports_no_more() -> None:
    with doors() as made:
        variables = made.variables_of("mine")
        with calling(variables[ADDRESS_VARIABLE], DbManagerCredentials.of(variables).token) as client:
            made.end("mine")

            assert readings(client) == [READING]
            with pytest.raises(ForbiddenError, match="it has ended"):
                client.report("mine", [READING])
            made.variables_of("mine")  # another trial of this name
            client.report("mine", [READING])
