"""Katib's DB manager: it knows its three calls and nothing beyond, and takes no notice of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from katib.rpc.credentials import Credentials
from katib.rpc.db_manager import DbManagerServicer
from katib.rpc.db_manager_client import DbManagerClient
from tests.support.observations import MemoryObservationLog, reading
from tests.support.services import serving


@pytest.fixture
def log() -> MemoryObservationLog:
    return MemoryObservationLog()


@pytest.fixture
def client(log: MemoryObservationLog) -> Iterator[DbManagerClient]:
    credentials = Credentials("katib1:controller:team::0")
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
