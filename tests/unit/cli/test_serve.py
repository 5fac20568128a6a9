from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from katib.doors.rest.notes import running_servers
from katib.doors.rest.sessions import new_ticket
from tests.support.golden import Golden
from tests.support.processes import Launch, signal_another_thread
from tests.support.waiting import eventually
from tests.support.warm import FAKE_ENGINE, popen
from tests.unit.cli.conftest import Katib

ROOT = Path(__file__).parents[3]
DEADLINE_SECONDS = 60


@contextmanager
def serve(directory: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a server in a process of its own and yield it with its URL, once it says that it listens."""
    process = popen(
        [*FAKE_ENGINE, "serve", "--port", "0", *options],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "XDG_STATE_HOME": str(directory / "state"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://[^ ]+", process.stdout.readline())
            assert found is not None
            yield process, found[0]
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("number", "code", "follows"),
    [
        (signal.SIGINT, 130, "end and start again next time"),
        (signal.SIGTERM, 0, "continue for 10m, and the next start here resumes them"),
    ],
    ids=["SIGINT", "SIGTERM"],
)
def test_a_signal_stops_the_server_in_order(tmp_path: Path, number: signal.Signals, code: int, follows: str) -> None:
    with serve(tmp_path) as (process, url):
        assert httpx.get(f"{url}/healthz", trust_env=False).json()["status"] == "ok"
        process.send_signal(number)
        _, err = process.communicate(timeout=DEADLINE_SECONDS)

    assert process.returncode == code
    assert err == f"stopping: running trials {follows}\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_a_server_that_takes_long_to_start(
    tmp_path: Path, launch: Launch, number: signal.Signals, code: int
) -> None:
    process = launch(
        [*FAKE_ENGINE, "serve", "--port", "0"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "FAKE_START": "600",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: running_servers(tmp_path / ".katib"), "it listens, which comes before its start")
    process.send_signal(number)
    out, err = process.communicate(timeout=DEADLINE_SECONDS)

    assert (process.returncode, out, err) == (code, "", "")
    assert not list((tmp_path / ".katib").glob("server-*"))


def test_a_signal_before_the_server_waits_is_not_lost(tmp_path: Path) -> None:
    with serve(tmp_path) as (process, _):
        signal_another_thread(process.pid, signal.SIGTERM)

        assert process.wait(DEADLINE_SECONDS) == 0


def test_the_token_of_the_environment_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KATIB_TOKEN", "secret")
    with serve(tmp_path) as (_, url):
        answers = [
            httpx.get(f"{url}/api/v1/experiments", headers=headers, trust_env=False).status_code
            for headers in ({}, {"authorization": "Bearer secret"})
        ]

    assert answers == [401, 200]


def test_a_port_in_use_is_bad_input(katib: Katib, golden: Golden) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = katib("serve", "--port", str(port))

    assert result.code == 2
    golden(result.err.replace(str(port), "PORT"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(["--gateway"], "--gateway needs --cluster", id="on-one-machine"),
        pytest.param(["--cluster", "--user-header", "x-user"], "--user-header needs --gateway", id="header"),
        pytest.param(
            ["--cluster", "--groups-header", "x-groups"], "--groups-header needs --gateway", id="groups-alone"
        ),
    ],
)
def test_options_of_a_gateway_are_not_ignored_without_one(katib: Katib, options: list[str], message: str) -> None:
    result = katib("serve", *options)

    assert result.code == 2
    assert message in result.err


def test_a_header_that_cannot_be_is_one_line(katib: Katib, golden: Golden) -> None:
    result = katib("serve", "--cluster", "--gateway", "--user-header", "kubeflow userid")

    assert (result.code, result.out) == (2, "")
    golden(result.err)


def test_the_variables_of_a_gateway_alone_make_no_header_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubeflow sets them for all its programs."""
    monkeypatch.setenv("USERID_HEADER", "kubeflow-userid")
    monkeypatch.setenv("KATIB_TOKEN", "secret")
    with serve(tmp_path) as (_, url):
        headers = {"kubeflow-userid": "alice@example.com"}

        assert httpx.get(f"{url}/api/v1/experiments", headers=headers, trust_env=False).status_code == 401


def test_a_server_without_token_says_what_that_means(tmp_path: Path, golden: Golden) -> None:
    with serve(tmp_path, "--no-token") as (process, url):
        assert process.stdout is not None
        printed = [process.stdout.readline() for _ in range(2)]

    golden(line.replace(url, "URL") for line in printed)


def test_neither_token_nor_link_nor_cookie_is_written_to_a_log(tmp_path: Path) -> None:
    """Whatever a browser does with them, and however much is logged."""
    with serve(tmp_path, "-vv") as (process, url):
        note = eventually(lambda: next(iter(running_servers(tmp_path / ".katib")), None))
        assert note is not None
        ticket = new_ticket(note.link_key, time.time())
        token = (tmp_path / ".katib" / "token").read_text().strip()
        with httpx.Client(base_url=url, trust_env=False) as browser:
            cookie = browser.get(f"/katib/open?ticket={ticket}").headers["set-cookie"].partition(";")[0]
            for path in ("/katib/", "/katib/nowhere", "/katib/data/x", "/api/v1/experiments?limit=x"):
                browser.get(path, headers={"cookie": cookie, "accept": "text/html"})
                browser.get(f"{path}?token={token}", headers={"authorization": f"Bearer {token}"})
            browser.get(f"/katib/open?ticket={ticket}&ticket={token}")
            browser.post("/katib/sign-in", data={"token": f"{token}x"})
            browser.post("/katib/sign-in", data={"token": token})
            browser.post("/katib/sign-in", content=token.encode() * 2, headers={"expect": token})
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)

    assert err
    assert [secret for secret in (token, ticket, cookie.partition("=")[2], "?ticket=") if secret in out + err] == []
