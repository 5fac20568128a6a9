"""The observation log behind a certificate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from katib.errors import UnavailableError
from katib.wire.rpc.credentials import DbManagerCredentials, server_credentials
from katib.wire.rpc.db_manager import DbManagerServer
from katib.wire.rpc.db_manager_client import DbManagerClient
from katib.wire.serving.certificates import Issued, issue
from tests.support.observations import MemoryObservationLog, reading, serving_log
from tests.support.refusals import refused

NAMES = ("katib-db-manager", "katib-db-manager.kubeflow")


def put(directory: Path, *names: str) -> Issued:
    """Leave a new certificate of a new authority in a directory, as anyone who renews it does."""
    issued = issue(names or NAMES, datetime.now(UTC), timedelta(days=1))
    (directory / "tls.crt").write_bytes(issued.certificate.chain)
    (directory / "tls.key").write_bytes(issued.certificate.key)
    return issued


@pytest.fixture
def issued(tmp_path: Path) -> Issued:
    return put(tmp_path)


@pytest.fixture
def server(tmp_path: Path, issued: Issued) -> Iterator[DbManagerServer]:
    del issued
    certificate = server_credentials(tmp_path)
    with serving_log(MemoryObservationLog(), credentials=certificate, plain_address="127.0.0.1:0") as server:
        yield server


def exchange(address: str, authority: bytes = b"") -> list[str]:
    """Report over one new connection and read it again."""
    credentials = DbManagerCredentials(authority=authority.decode())
    with closing(DbManagerClient(address, timeout_seconds=60, credentials=credentials)) as client:
        client.begin("a")
        client.report("a", [reading("0.5")])
        return [log.value for log in client.read("a")]


def test_nobody_is_served_who_trusts_another_authority(server: DbManagerServer, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    with pytest.raises(UnavailableError):
        exchange(server.address, put(elsewhere).authority)


def test_plain_text_is_not_understood(server: DbManagerServer) -> None:
    with pytest.raises(UnavailableError):
        exchange(server.address)


def test_a_certificate_of_another_name_is_not_trusted(tmp_path: Path) -> None:
    issued = put(tmp_path, "somebody-else")
    with (
        serving_log(MemoryObservationLog(), credentials=server_credentials(tmp_path)) as server,
        pytest.raises(UnavailableError),
    ):
        exchange(server.address, issued.authority)


def test_a_renewed_certificate_serves_the_next_connection(
    server: DbManagerServer, tmp_path: Path, issued: Issued
) -> None:
    assert exchange(server.address, issued.authority) == ["0.5"]

    assert exchange(server.address, put(tmp_path).authority) == ["0.5"]


def test_files_that_are_gone_leave_the_old_certificate_in_use(
    server: DbManagerServer, tmp_path: Path, issued: Issued
) -> None:
    (tmp_path / "tls.key").unlink()

    assert exchange(server.address, issued.authority) == ["0.5"]


def test_forwarded_ports_find_plain_text_beside_it(server: DbManagerServer) -> None:
    assert exchange(server.plain_address) == ["0.5"]


def test_without_files_there_is_nothing_to_serve_with(tmp_path: Path) -> None:
    with refused("certificate-files"):
        server_credentials(tmp_path)
