"""`katib serve --stop`: the server of a data directory ends, and no other process."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from katib.doors.rest.notes import noted
from tests.support.cli import KATIB, a_server, environment, katib, katib_here
from tests.support.golden import Golden
from tests.support.processes import Launch
from tests.support.waiting import eventually

LINE = ("tune", "-p", "x=0..1", "--minimize", "loss", "--trials", "2", "--parallel", "1")
SLOW = "import time\ntime.sleep(600)\n"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "train.py").write_text("import sys\nprint('loss=' + sys.argv[1])\n")
    yield tmp_path
    with suppress(OSError, ValueError, KeyError):  # the server of a test that failed
        os.kill(int(json.loads((tmp_path / ".katib" / "engine.lock").read_text())["pid"]), 9)


def test_the_command_that_a_detached_run_prints_ends_the_server_that_it_started(
    directory: Path, golden: Golden
) -> None:
    state = {"XDG_STATE_HOME": str(directory / "state")}
    line = (*LINE, "--detach", "--data-dir", "my data", "--", sys.executable, "train.py", "{x}")
    handed = katib(*line, cwd=directory, **state)
    (stop,) = re.findall("`(katib serve [^`]*)`", handed.stdout)
    watched = katib("watch", "train", "--data-dir", "my data", cwd=directory, **state)
    stopped = katib(*shlex.split(stop)[1:], cwd=directory, **state)
    again = katib(*shlex.split(stop)[1:], cwd=directory, **state)

    assert handed.returncode == 0, handed.stderr
    assert watched.returncode == 0, watched.stderr
    assert stop == "katib serve --stop --data-dir 'my data'"
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert re.search(r" http://127.0.0.1:\d+ \(process \d+\) ", stopped.stdout)
    assert again.returncode == 2
    golden(again.stderr)


@pytest.mark.parametrize("ends_trials", [False, True])
def test_trials_that_run_go_on_without_the_server_unless_they_are_to_end(directory: Path, ends_trials: bool) -> None:
    (directory / "train.py").write_text(SLOW)
    with a_server(directory) as server:
        katib(*LINE, "--detach", "--", sys.executable, "train.py", "{x}", cwd=directory)
        eventually(lambda: katib_here("get", "trials", cwd=directory).stdout.count("Running"), "a trial runs")
        done = katib("serve", "--stop", *(("--orphans", "0") if ends_trials else ()), cwd=directory)
        running = [command for command in server.descendants() if "train.py" in command]

        assert done.returncode == 0, done.stderr
        assert server.process is not None
        assert server.process.wait(0) == (130 if ends_trials else 0)
        if ends_trials:
            assert running == []
            assert "running" not in done.stdout
            return
        assert len(running) == 1
        assert done.stdout.endswith("`katib serve` resumes it\n")
    with a_server(directory) as server:  # takes the program over, and ends it with itself
        eventually(lambda: katib_here("get", "trials", cwd=directory).stdout.count("Running"), "it is taken over")


def test_a_process_that_only_has_the_number_of_the_server_is_left_alone(
    directory: Path, launch: Launch, golden: Golden
) -> None:
    bystander = launch([sys.executable, "-c", SLOW])
    data = directory / ".katib"
    with noted("http://127.0.0.1:1", None, data):
        path = data / "server-1.json"
        note = json.loads(path.read_text())
        with path.open("r+") as file:  # in place: the lock lies on this file
            file.write(json.dumps({**note, "pid": bystander.pid}))
            file.truncate()
        done = katib("serve", "--stop", cwd=directory)

    assert done.returncode == 1
    golden(done.stderr)
    assert bystander.poll() is None


def test_a_run_is_not_taken_for_a_server(directory: Path, launch: Launch, golden: Golden) -> None:
    (directory / "train.py").write_text(SLOW)
    run = launch([*KATIB, *LINE, "--", sys.executable, "train.py", "{x}"], cwd=directory, env=environment())
    eventually(lambda: katib_here("get", "trials", cwd=directory).stdout.count("Running"), "a trial runs")
    done = katib("serve", "--stop", cwd=directory)

    assert done.returncode == 2
    golden(done.stderr.replace(str(run.pid), "PID"))
    assert run.poll() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "1"], "--port has no meaning for --stop; leave it out"),
        (["--cluster"], "--stop stops the server of a data directory; leave --cluster out"),
        (["--orphans", "1h"], "the server was started with its --orphans; beside --stop only --orphans 0"),
    ],
)
def test_options_of_a_start_are_refused(directory: Path, options: list[str], message: str) -> None:
    done = katib_here("serve", "--stop", *options, cwd=directory)

    assert (done.returncode, done.stderr.partition("\n")[0]) == (2, f"error: {message}")
