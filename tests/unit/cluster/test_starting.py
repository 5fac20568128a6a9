"""What processes of a cluster are started with, what they wait for, and what they find out first."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from katib.engine.databases.sqlite import Database, open_database
from katib.errors import ForbiddenError, TerminalError, UnavailableError
from katib.model.configuration import read_configuration
from katib.places.cluster.configuration.models import KatibConfig
from katib.places.cluster.controller import ControllerOptions
from katib.places.cluster.db_manager import DbManager, read_options
from katib.places.cluster.environment import BACKOFF, await_answer
from katib.places.cluster.monitoring.await_ready import is_ready
from katib.places.cluster.version import supported_version
from tests.support.clock import VirtualClock
from tests.support.golden import Golden
from tests.support.refusals import refused


def options(generator: str, certificates: Path | None = None) -> ControllerOptions:
    config = read_configuration(KatibConfig, f"init: {{certGenerator: {generator}}}", "katib-config.yaml")
    return ControllerOptions(config=config, certificates=certificates)


@pytest.mark.parametrize("generator", ["{}", "{enable: true}", "{enable: false, webhookSecretName: mine}"])
def test_a_certificate_is_made_where_nothing_forbids_it(generator: str) -> None:
    options(generator)


def test_a_controller_that_may_not_make_its_certificate_has_to_be_given_one(tmp_path: Path) -> None:
    """It used to make one all the same, and to take over the trust of webhooks that somebody else looks after."""
    with refused("certificate-missing"):
        options("{enable: false}")

    options("{enable: false}", tmp_path)


class _Server:
    """An API server of one version."""

    host = "https://10.0.0.1:6443"

    def __init__(self, major: str, minor: str) -> None:
        self._answer = {"major": major, "minor": minor}

    def request(self, _method: str, _path: str) -> dict[str, str]:
        return self._answer


@pytest.mark.parametrize(("major", "minor"), [("1", "32"), ("1", "37+"), ("2", "0"), ("", "")])
def test_a_supported_version_is_taken(major: str, minor: str) -> None:
    assert supported_version(_Server(major, minor)) == f"{major}.{minor}"  # type: ignore[arg-type]


@pytest.mark.parametrize("minor", ["20", "31", "31+"])
def test_an_older_cluster_is_refused_with_the_oldest_supported_version(minor: str, golden: Golden) -> None:
    with golden.raises(TerminalError):
        supported_version(_Server("1", minor))  # type: ignore[arg-type]


def test_the_first_answer_is_waited_for_with_growing_pauses(caplog: pytest.LogCaptureFixture, golden: Golden) -> None:
    answers: list[str | Exception] = [
        *(UnavailableError(words) for words in ("no answer", "no answer", "starting")),
        "1.36",
    ]
    pauses: list[float] = []

    def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with caplog.at_level("INFO", "katib"):
        assert await_answer(ask, lambda seconds: bool(pauses.append(seconds))) == "1.36"

    bounds = [BACKOFF.pause_seconds(failures) for failures in (1, 2, 3)]
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(pauses, bounds, strict=True))
    golden([record.getMessage() for record in caplog.records])


def test_who_waits_can_be_ended_and_what_is_no_outage_is_raised() -> None:
    def away() -> None:
        raise UnavailableError("no answer")

    def forbidden() -> None:
        raise ForbiddenError("may not")

    assert await_answer(away, lambda _seconds: True) is None
    with pytest.raises(ForbiddenError):
        await_answer(forbidden, lambda _seconds: False)
    assert await_answer(forbidden, lambda _seconds: True, (ForbiddenError,)) is None


class HurriedClock(VirtualClock):
    """Lets time pass for whoever waits."""

    def wait(self, _condition: threading.Condition, timeout_seconds: float | None = None) -> None:
        self.advance(timeout_seconds or 0.0)


def test_a_manager_waits_for_its_database_as_long_as_it_takes(tmp_path: Path) -> None:
    clock = HurriedClock()
    away_seconds = 3600.0

    def open_() -> Database:
        if clock.monotonic() < away_seconds:
            raise UnavailableError("connection refused")
        manager.stop()
        return open_database(tmp_path / "katib.db")

    options = read_options(url="sqlite:///unused.db", listen_address="127.0.0.1:0")
    manager = DbManager(replace(options, open=open_), clock)
    manager.run()

    assert clock.monotonic() >= away_seconds
    assert (tmp_path / "katib.db").exists()


class Page(BaseHTTPRequestHandler):
    """Answers 503 to the first two questions."""

    def do_GET(self) -> None:
        self.server.asked = getattr(self.server, "asked", 0) + 1  # type: ignore[attr-defined]
        self.send_response(200 if self.server.asked > 2 else 503)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def page() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/readyz"
        server.shutdown()
        thread.join()


def test_a_port_is_ready_when_somebody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        assert is_ready(address)

    assert not is_ready(address)


def test_the_command_of_a_probe_waits_as_long_as_it_may_and_says_it_by_its_exit_code(page: str) -> None:
    command = [sys.executable, "-m", "katib.places.cluster.monitoring.await_ready"]

    assert subprocess.run([*command, page, "30"], check=False).returncode == 0
    assert subprocess.run([*command, "tcp://127.0.0.1:1", "0"], check=False).returncode == 1
