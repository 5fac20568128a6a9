from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.unit.cli.conftest import Katib

ROOT = Path(__file__).parents[3]
DEADLINE_SECONDS = 20


@contextmanager
def serve(directory: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a server in a process of its own and yield it with its URL, once it says that it listens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.fake_engine", "serve", "--port", "0", *options],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
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
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)], ids=lambda value: getattr(value, "name", None)
)
def test_a_signal_stops_the_server_in_order(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with serve(tmp_path) as (process, url):
        assert httpx.get(f"{url}/healthz", trust_env=False).json()["status"] == "ok"
        process.send_signal(number)
        _, err = process.communicate(timeout=DEADLINE_SECONDS)

    assert process.returncode == code
    assert err == "stopping: running trials end and start again next time\n"


def test_the_token_of_the_environment_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KATIB_TOKEN", "secret")
    with serve(tmp_path) as (_, url):
        answers = [
            httpx.get(f"{url}/api/v1/experiments", headers=headers, trust_env=False).status_code
            for headers in ({}, {"authorization": "Bearer secret"})
        ]

    assert answers == [401, 200]


def test_a_port_in_use_is_bad_input(katib: Katib) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = katib("serve", "--port", str(port))

    assert result.code == 2
    assert result.err == (
        f"error: --port: port {port} on 127.0.0.1 is in use by another program; "
        "stop it, or choose another port, such as --port 0 for a free one\n"
    )


def test_listening_beyond_this_machine_needs_a_token(katib: Katib) -> None:
    result = katib("serve", "--host", "0.0.0.0")

    assert result.code == 2
    assert result.err.startswith("error: --host: 0.0.0.0 can be reached from other machines")
    assert result.err.count("\n") == 1
