"""Katib's DB manager: it knows its three calls and nothing beyond, and takes no notice of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from katib.rpc._generated.api_pb2_grpc import add_DBManagerServicer_to_server
from katib.rpc.credentials import Credentials
from katib.rpc.db_manager import DbManagerServicer
from katib.rpc.db_manager_client import DbManagerClient
from tests.support.observations import MemoryObservationLog, reading


@pytest.fixture
def log() -> MemoryObservationLog:
    return MemoryObservationLog()


@pytest.fixture
def client(log: MemoryObservationLog) -> Iterator[DbManagerClient]:
    server = grpc.server(ThreadPoolExecutor(2))
    add_DBManagerServicer_to_server(DbManagerServicer(log), server)  # type: ignore[no-untyped-call]  # generated
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    client = DbManagerClient(f"127.0.0.1:{port}", credentials=Credentials("katib1:controller:team::0"))
    yield client
    client.close()
    server.stop(0)


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
