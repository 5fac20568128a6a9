"""`katib db-manager` in a process of its own, as a pod runs it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from katib.errors import AlreadyExistsError, ForbiddenError, UnavailableError
from katib.places.cluster.installation_key import write_keys
from katib.wire.rpc._generated import health_pb2
from katib.wire.rpc.credentials import DbManagerCredentials
from katib.wire.rpc.db_manager_client import DbManagerClient
from katib.wire.rpc.services import calls_over
from katib.wire.rpc.tokens import CallerRole, TokenClaims, TokenSigner
from tests.support.cli import KATIB, environment, katib_here
from tests.support.golden import Golden
from tests.support.observations import reading
from tests.support.ports import free_port
from tests.support.sql_servers import PASSWORD, SERVERS, USER, SqlServerProcess
from tests.support.waiting import eventually


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> SqlServerProcess:
    start: Callable[[], SqlServerProcess] = request.param
    return start()


def variables(server: SqlServerProcess, name: str) -> dict[str, str]:
    """Return the settings as Katib's manifests give them."""
    kind, prefix = ("postgres", "POSTGRESQL") if server.scheme == "postgresql" else ("mysql", "MYSQL")
    return {
        "DB_NAME": kind,
        "DB_USER": USER,
        "DB_PASSWORD": PASSWORD,
        f"KATIB_{prefix}_DB_HOST": "127.0.0.1",
        f"KATIB_{prefix}_DB_PORT": str(server.port),
        f"KATIB_{prefix}_DB_DATABASE": name,
    }


@contextmanager
def running(directory: Path, **env: str) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """Run a manager; yield its process, where it listens, and its log."""
    address, log = f"127.0.0.1:{free_port()}", directory / "log"
    with log.open("wb") as output:
        command = [*KATIB, "db-manager", "--listen-address", address]
        process = subprocess.Popen(command, env=environment(**env), stderr=output)
    try:
        yield process, address, log
    finally:
        process.kill()
        process.wait()


def serves(address: str) -> bool:
    with grpc.insecure_channel(address) as channel:
        stub: Any = calls_over(channel, health_pb2)
        try:
            reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
        except grpc.RpcError:
            return False
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def test_a_manager_outlives_an_outage_and_ends_in_order(server: SqlServerProcess, tmp_path: Path) -> None:
    name = server.new_database()
    with running(tmp_path, **variables(server, name)) as (process, address, log):
        eventually(lambda: serves(address))
        client = DbManagerClient(address)
        client.report("a", [reading("1")])
        server.kill()
        try:
            begin = time.monotonic()
            with pytest.raises(UnavailableError):
                client.report("a", [reading("2")])
            seconds = time.monotonic() - begin
            healthy = serves(address)
        finally:
            server.start()
        eventually(lambda: serves(address))
        client.report("a", [reading("3")])
        stored = [entry.value for entry in client.read("a")]
        client.close()
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
        said = log.read_text()

    assert (stored, healthy, code) == (["1", "3"], False, 0)
    assert seconds < 30
    assert said.count("the database is away") == said.count("the database is back") == 1
    assert "Traceback" not in said
    assert PASSWORD not in said


@pytest.mark.slow
def test_a_manager_that_was_started_first_waits_for_its_database(server: SqlServerProcess, tmp_path: Path) -> None:
    name = server.new_database()
    server.stop()
    try:
        with running(tmp_path, **variables(server, name)) as (_, address, log):
            eventually(lambda: "waiting for the database" in log.read_text())
            server.start()
            eventually(lambda: serves(address))
    finally:
        if not server.is_running:
            server.start()


def test_a_manager_that_waits_ends_when_it_is_told_to(tmp_path: Path) -> None:
    with running(tmp_path, DB_NAME="mysql", KATIB_MYSQL_DB_HOST="127.0.0.1", KATIB_MYSQL_DB_PORT="1") as (
        process,
        _,
        log,
    ):
        eventually(lambda: "waiting for the database" in log.read_text())
        process.send_signal(signal.SIGTERM)

        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "env", "code"),
    [
        pytest.param([], {}, 2, id="nothing"),
        pytest.param(["--url", "mysql://u:hunter2@db"], {}, 2, id="no database"),
        pytest.param(["--listen-address", "6789"], {"DB_NAME": "mysql"}, 2, id="address"),
        pytest.param(["--connect-timeout", "soon"], {}, 2, id="time"),
        pytest.param(["--url", "mysql://u:hunter2@127.0.0.1:1/d", "--connect-timeout", "0s"], {}, 1, id="nobody there"),
        pytest.param(["--url", "sqlite:///katib.db"], {"SKIP_DB_INITIALIZATION": "true"}, 1, id="no table"),
    ],
)
def test_bad_settings_are_one_line(
    tmp_path: Path, arguments: list[str], env: dict[str, str], code: int, golden: Golden
) -> None:
    done = katib_here("db-manager", *arguments, cwd=tmp_path, **env)

    golden(done.stderr)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert "hunter2" not in done.stderr


def test_a_manager_of_a_file_needs_neither_cluster_nor_server(tmp_path: Path) -> None:
    with running(tmp_path, KATIB_DB_URL=f"sqlite:///{tmp_path / 'katib.db'}") as (_, address, _):
        eventually(lambda: serves(address))
        client = DbManagerClient(address)
        client.report("a", [reading("1")])
        stored = client.read("a")
        client.close()

    assert list(stored) == [reading("1")]


def test_a_manager_needs_no_client_of_kubernetes() -> None:
    code = (
        "import sys, katib.doors.cli.db_manager, katib.places.cluster.db_manager; sys.exit('kubernetes' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_manager_with_a_key_asks_for_tokens_and_keeps_in_its_database_whose_logs_are_whose(tmp_path: Path) -> None:
    write_keys(tmp_path / "keys", [b"k" * 32])
    tokens = TokenSigner([b"k" * 32])
    url = f"sqlite:///{tmp_path / 'katib.db'}"
    settings = {"KATIB_DB_URL": url, "KATIB_DB_MANAGER_KEY_FILE": str(tmp_path / "keys")}
    team, others = (
        DbManagerCredentials(tokens.token_of(TokenClaims(CallerRole.CONTROLLER, namespace)))
        for namespace in ("team", "others")
    )
    with running(tmp_path, **settings) as (_, address, log):
        eventually(lambda: serves(address))
        client = DbManagerClient(address, credentials=team)
        client.begin("a")
        client.report("a", [reading("0.5")])
        client.close()
        first = log.read_text()
    with running(tmp_path, **settings) as (_, address, _):
        eventually(lambda: serves(address))
        stranger, nobody = DbManagerClient(address, credentials=others), DbManagerClient(address)
        with pytest.raises(AlreadyExistsError):
            stranger.begin("a")
        with pytest.raises(ForbiddenError):
            nobody.report("a", [reading("0.1")])
        assert [entry.value for entry in nobody.read("a")] == ["0.5"]  # over loopback, as through a forwarded port
        stranger.close()
        nobody.close()

    assert "asked for no token" not in first


def test_a_manager_without_a_key_says_that_it_asks_nobody(tmp_path: Path) -> None:
    with running(tmp_path, KATIB_DB_URL=f"sqlite:///{tmp_path / 'katib.db'}") as (_, address, log):
        eventually(lambda: serves(address))

        assert "no token" in log.read_text()


def test_a_key_that_cannot_be_read_is_one_line_before_anything_is_served(tmp_path: Path, golden: Golden) -> None:
    url = f"sqlite:///{tmp_path / 'katib.db'}"
    done = katib_here("db-manager", "--url", url, "--key-file", str(tmp_path / "missing"), cwd=tmp_path)

    assert done.returncode == 2
    golden(done.stderr.splitlines())
