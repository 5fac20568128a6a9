"""The DB manager over gRPC, and Katib's own one, which knows three calls and takes no notice of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import grpc
import pytest

from katib.errors import InvalidError, UnavailableError
from katib.wire.rpc._generated import api_pb2 as pb
from katib.wire.rpc._generated import health_pb2
from katib.wire.rpc.credentials import DbManagerCredentials
from katib.wire.rpc.db_manager import DbManagerServer, DbManagerServicer, serve_db_manager
from katib.wire.rpc.db_manager_client import DbManagerClient
from katib.wire.rpc.services import calls_over
from tests.support.golden import Golden
from tests.support.observations import MemoryObservationLog, reading, serving_log
from tests.support.refusals import INVALID, refusal
from tests.support.services import serving


class BrokenLog(MemoryObservationLog):
    """A log whose database is gone."""

    def count(self, trial_name: str, *, metric_name: str = "") -> int:
        raise UnavailableError("katib.db: disk I/O error; check the disk")

    def delete(self, trial_name: str) -> None:
        self.count(trial_name)

    def report(self, _trial_name: str, _logs: object, _batch: object = None) -> None:
        raise ValueError("a bug")


@pytest.fixture
def log() -> MemoryObservationLog:
    return MemoryObservationLog()


@pytest.fixture
def server(log: MemoryObservationLog) -> Iterator[DbManagerServer]:
    with serving_log(log) as server:
        yield server


@pytest.fixture
def channel(server: DbManagerServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.address) as channel:
        yield channel


@pytest.fixture
def broken() -> Iterator[grpc.Channel]:
    with serving_log(BrokenLog()) as server, grpc.insecure_channel(server.address) as channel:
        yield channel


def stub(channel: grpc.Channel) -> Any:
    return calls_over(channel, pb)


def entry(time_stamp: str, name: str = "loss", value: str = "1") -> pb.MetricLog:
    return pb.MetricLog(time_stamp=time_stamp, metric=pb.Metric(name=name, value=value))


def report(channel: grpc.Channel, *entries: pb.MetricLog, trial: str = "a") -> None:
    message = pb.ObservationLog(metric_logs=entries)
    stub(channel).ReportObservationLog(pb.ReportObservationLogRequest(trial_name=trial, observation_log=message))


def test_a_reading_without_time_stamp_is_skipped(channel: grpc.Channel, log: MemoryObservationLog) -> None:
    report(channel, entry("", value="1"), entry("2024-03-04T17:55:08Z", value="2"))

    assert log.read("a") == [reading("2")]


def test_one_unreadable_time_stamp_fails_the_whole_report(channel: grpc.Channel, log: MemoryObservationLog) -> None:
    assert refusal(report, channel, entry("2024-03-04T17:55:08Z"), entry("2020-08-10T14:47:42")) == (
        INVALID,
        (
            "observation_log.metric_logs[1].time_stamp: '2020-08-10T14:47:42' is not an RFC 3339 time stamp; "
            "write it as 2024-03-04T17:55:08Z"
        ),
    )
    assert log.read("a") == []


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(pb.ReportObservationLogRequest(trial_name="a"), id="no log"),
        pytest.param(
            pb.ReportObservationLogRequest(trial_name="a", observation_log=pb.ObservationLog()), id="empty log"
        ),
        pytest.param(
            pb.ReportObservationLogRequest(
                trial_name="a", observation_log=pb.ObservationLog(metric_logs=[pb.MetricLog()])
            ),
            id="empty reading",
        ),
    ],
)
def test_a_report_without_usable_reading_stores_nothing(
    channel: grpc.Channel, log: MemoryObservationLog, request_: pb.ReportObservationLogRequest
) -> None:
    stub(channel).ReportObservationLog(request_)

    assert log.read("a") == []


def test_a_call_names_its_trial_and_a_reading_its_metric(channel: grpc.Channel) -> None:
    assert refusal(report, channel, pb.MetricLog(time_stamp="2024-03-04T17:55:08Z")) == (
        INVALID,
        "observation_log.metric_logs[0].metric.name: empty; name the metric",
    )

    refused = refusal(stub(channel).DeleteObservationLog, pb.DeleteObservationLogRequest())

    assert refused[0] == INVALID
    assert refused[1].startswith("trial_name: ")


@pytest.mark.parametrize("field", ["start_time", "end_time"])
def test_bounds_must_be_times(channel: grpc.Channel, field: str, golden: Golden) -> None:
    request = pb.GetObservationLogRequest(trial_name="a", **{field: "yesterday"})
    code, details = refusal(stub(channel).GetObservationLog, request)

    assert code is INVALID
    golden(details)


@pytest.mark.parametrize(
    ("sent", "returned"),
    [
        pytest.param("2024-03-04T17:55:08.500000Z", "2024-03-04T17:55:08.5Z", id="trailing zeros"),
        pytest.param("2024-03-04T17:55:08Z", "2024-03-04T17:55:08Z", id="no fraction"),
        pytest.param("2024-03-05T02:55:08.000001+09:00", "2024-03-04T17:55:08.000001Z", id="another zone"),
        pytest.param("2024-03-04T17:55:08.123456789Z", "2024-03-04T17:55:08.123456Z", id="nanoseconds"),
        pytest.param("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z", id="zero time"),
    ],
)
def test_times_are_returned_in_utc_without_trailing_zeros(channel: grpc.Channel, sent: str, returned: str) -> None:
    report(channel, entry(sent))
    reply = stub(channel).GetObservationLog(pb.GetObservationLogRequest(trial_name="a"))

    assert [log.time_stamp for log in reply.observation_log.metric_logs] == [returned]


def test_a_failure_of_the_log_carries_its_code_and_a_bug_is_internal(broken: grpc.Channel) -> None:
    refused = refusal(stub(broken).DeleteObservationLog, pb.DeleteObservationLogRequest(trial_name="a"))

    assert refused == (grpc.StatusCode.UNAVAILABLE, "katib.db: disk I/O error; check the disk")

    assert refusal(report, broken, entry("2024-03-04T17:55:08Z")) == (grpc.StatusCode.INTERNAL, "a bug")


@pytest.mark.parametrize("service", ["", "grpc.health.v1.Health"])
def test_health_is_serving_while_the_log_answers(channel: grpc.Channel, service: str) -> None:
    health: Any = calls_over(channel, health_pb2)
    reply = health.Check(health_pb2.HealthCheckRequest(service=service))

    assert reply.status == health_pb2.HealthCheckResponse.SERVING


def test_health_fails_with_unknown_when_the_log_does_not_answer(broken: grpc.Channel) -> None:
    health: Any = calls_over(broken, health_pb2)

    refused = refusal(health.Check, health_pb2.HealthCheckRequest())

    assert refused == (grpc.StatusCode.UNKNOWN, "katib.db: disk I/O error; check the disk")


def test_health_of_an_unknown_service_is_unknown(channel: grpc.Channel) -> None:
    health: Any = calls_over(channel, health_pb2)
    refused = refusal(health.Check, health_pb2.HealthCheckRequest(service="grpc.health.v1.1.Health"))

    assert refused == (grpc.StatusCode.UNKNOWN, "unknown service 'grpc.health.v1.1.Health'")


def test_a_client_without_server_says_which_one_it_misses(server: DbManagerServer) -> None:
    server.stop(0)
    client = DbManagerClient(server.address, timeout_seconds=2)

    with pytest.raises(UnavailableError, match=rf"DB manager at {server.address}: "):
        client.delete("a")
    client.close()
    with pytest.raises(UnavailableError, match="closed"):
        client.delete("a")


def test_a_refused_call_is_an_invalid_error_of_the_client(channel: grpc.Channel) -> None:
    with pytest.raises(InvalidError) as caught:
        DbManagerClient(channel).delete("")

    assert [(error.path, error.origin) for error in caught.value.errors] == [("trial_name", "trial-name-required")]


def test_an_address_in_use_is_refused(server: DbManagerServer) -> None:
    with pytest.raises(UnavailableError, match=f"{server.address}: cannot listen there"):
        serve_db_manager(MemoryObservationLog(), server.address)


@pytest.fixture
def client(log: MemoryObservationLog) -> Iterator[DbManagerClient]:
    credentials = DbManagerCredentials("katib1:controller:team::0")
    with (
        serving(db_manager=DbManagerServicer(log)) as address,
        closing(DbManagerClient(address, credentials=credentials)) as client,
    ):
        yield client


def test_its_logs_are_summarized_by_the_client(client: DbManagerClient, log: MemoryObservationLog) -> None:
    log.report("a", [reading("0.5"), reading("0.2", second=2), reading("0.4", second=1), reading("9", name="other")])

    assert client.summarize("a", ["loss", "missing"]) == log.summarize("a", ["loss", "missing"])
    assert client.summarize("a", ["missing", "loss"]) is None


def test_a_trial_begins_with_an_empty_log(client: DbManagerClient, log: MemoryObservationLog) -> None:
    log.report("a", [reading("0.5")])
    client.begin("a", reports_without_token=True)

    assert log.read("a") == []


def test_it_refuses_nothing(client: DbManagerClient) -> None:
    assert client.refusal_of("a") == ""
