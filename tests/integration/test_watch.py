"""Runs in the background: handed to a server, or left by their terminal, and watched from another one."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.cli import KATIB, environment, katib, katib_here
from tests.support.golden import Golden
from tests.support.processes import Launch
from tests.support.waiting import eventually

X = ("-p", "x=0.0..1.0", "--minimize", "loss", "--trials", "4", "--parallel", "1")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "train.py").write_text("import sys, time\ntime.sleep(0.5)\nprint('loss=' + sys.argv[1])\n")
    yield tmp_path
    with suppress(OSError, ValueError):  # the server of a test that failed
        os.kill(holder(tmp_path), signal.SIGKILL)


def holder(directory: Path) -> int:
    """Return the process that holds the data directory."""
    return int(json.loads((directory / ".katib" / "engine.lock").read_text())["pid"])


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, also where nothing has collected it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:
        return True


def test_a_detached_run_goes_on_in_a_server_and_is_watched_to_its_end(directory: Path) -> None:
    state = {"XDG_STATE_HOME": str(directory / "state")}
    line = (*X, "--detach", "--", sys.executable, "train.py", "{x}")
    handed = katib("tune", *line, cwd=directory, **state)
    watched = katib("watch", "train", cwd=directory, **state)
    server = holder(directory)
    again = katib("tune", *line[:-3], "python", "train.py", "{x}", cwd=directory, **state)
    other = katib("watch", "train-2", cwd=directory, **state)
    os.kill(server, signal.SIGTERM)

    assert handed.returncode == 0, handed.stderr
    assert "`katib watch train`" in handed.stdout
    assert watched.returncode == 0, watched.stderr
    assert "train succeeded" in watched.stdout
    assert again.returncode == 0, again.stderr
    assert "train-2 succeeded" in other.stdout
    eventually(lambda: is_gone(server), "the server ends")


def test_a_run_survives_its_terminal_and_is_watched_from_another(directory: Path, launch: Launch) -> None:
    controller, terminal = pty.openpty()
    process = launch(
        [*KATIB, "tune", *X, "--", sys.executable, "train.py", "{x}"],
        cwd=directory,
        env=environment(),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        close_fds=True,
    )
    os.close(terminal)
    shown = b""
    end = time.monotonic() + 60
    while b"train-" not in shown and time.monotonic() < end:
        shown += os.read(controller, 65536)
    process.send_signal(signal.SIGHUP)
    os.close(controller)
    watched = katib("watch", "train", cwd=directory)
    described = katib_here("describe", "train", cwd=directory).stdout

    assert "train succeeded" in watched.stdout, watched.stderr
    assert process.wait(60) == 0
    assert "train" in described


def test_watching_what_nothing_works_on_names_the_command_that_goes_on(
    directory: Path, launch: Launch, golden: Golden
) -> None:
    (directory / "train.py").write_text("import time\ntime.sleep(600)\n")
    process = launch([*KATIB, "tune", *X, "-q", "--", "python", "train.py", "{x}"], cwd=directory, env=environment())
    eventually(lambda: katib_here("get", "trials", cwd=directory).stdout.count("Running"), "a trial runs")
    process.send_signal(signal.SIGINT)
    process.wait(60)
    done = katib("watch", "train", cwd=directory)

    assert done.returncode == 1
    golden(done.stderr)
