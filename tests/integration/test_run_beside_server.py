"""`katib run` where a server works on the data directory or is named. What is as without one: `test_run_again.py`."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import KATIB, ServerProcess, a_server, environment, katib, katib_here
from tests.support.processes import Launch
from tests.support.scripts import GOOD, experiments, run, trials, write
from tests.support.waiting import eventually

FAILING = "import sys\nraise ValueError('no such column')\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write(tmp_path)
    (tmp_path / "train.py").write_text(GOOD)
    return tmp_path


@pytest.fixture
def server(directory: Path) -> Iterator[ServerProcess]:
    with a_server(directory) as server:
        yield server


def test_an_experiment_that_ended_before_the_server_started_goes_on_in_it(directory: Path) -> None:
    (directory / "train.py").write_text(FAILING)
    first = run(directory)
    (directory / "train.py").write_text(GOOD)
    with a_server(directory):
        done = run(directory)
        more = run(directory, "--more", "2")

    assert [first.returncode, done.returncode, more.returncode] == [1, 0, 0], done.stderr + more.stderr
    assert all("Ctrl-C" in one.stderr for one in (done, more))
    assert "train.py changed since" in done.stderr
    assert experiments(directory) == {"demo": ("Succeeded", 6)}


@pytest.mark.usefixtures("server")
def test_an_unfinished_experiment_starts_again_and_its_running_trial_ends(directory: Path, launch: Launch) -> None:
    (directory / "train.py").write_text("import time\ntime.sleep(600)\n")
    launch([*KATIB, "run", "demo.yaml"], cwd=directory, env=environment())
    eventually(lambda: katib_here("get", "trials", cwd=directory).stdout.count("Running"), "a trial runs")
    (directory / "train.py").write_text(GOOD)
    done = run(directory, "--restart")

    assert done.returncode == 0, done.stderr
    assert experiments(directory) == {"demo-1": ("Failed", 1), "demo": ("Succeeded", 4)}
    assert [state for state, _ in trials(directory, "demo-1").values()] == ["Killed"]


def test_a_server_that_is_named_runs_it_from_another_directory(
    directory: Path, server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    at = ("--server", server.url)
    first = katib("run", directory / "demo.yaml", *at, cwd=elsewhere)
    again = katib("run", directory / "demo.yaml", *at, "--restart", cwd=elsewhere)

    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert f"katib why demo --server {server.url}" in first.stdout
    assert set(experiments(directory)) == {"demo", "demo-1"}
    assert not (elsewhere / ".katib").exists()


def test_a_server_that_is_named_tunes_a_line_and_knows_it_again(
    directory: Path, server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    line = ("tune", "-p", "x=0.0..1.0", "--minimize", "loss", "--trials", "2", "--server", server.url)
    command = ("--", sys.executable, directory / "train.py", "{x}")
    first = katib(*line, *command, cwd=elsewhere)
    again = katib(*line, "--more", "1", *command, cwd=elsewhere)

    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert f"katib why train --server {server.url}" in first.stdout
    assert set(experiments(directory)) == {"train"}
    assert len(trials(directory, "train")) == 3
    assert not (elsewhere / ".katib").exists()


@pytest.mark.usefixtures("server")
def test_ctrl_c_stops_the_watching_only_and_the_commands_that_it_names_help(directory: Path, launch: Launch) -> None:
    (directory / "train.py").write_text("import time\ntime.sleep(3)\n" + GOOD)
    process = launch([*KATIB, "run", "demo.yaml"], cwd=directory, env=environment(), stderr=subprocess.PIPE, text=True)
    eventually(lambda: katib_here("get", "trials", cwd=directory).stdout.count("Running"), "a trial runs")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    watch, stop = re.findall("`(katib [^`]*)`", err)
    stopped = katib(*shlex.split(stop)[1:], cwd=directory)
    eventually(lambda: not katib_here("get", "trials", cwd=directory).stdout.count("Running"), "the trial ends")

    assert process.returncode == 130
    assert "http://127.0.0.1:" in err
    assert (watch, stop) == ("katib watch demo", "katib stop demo")
    assert stopped.returncode == 0, stopped.stderr
    assert [state for state, _ in trials(directory).values()] == ["Succeeded"]


@pytest.mark.usefixtures("server")
def test_options_of_an_engine_are_refused_beside_a_server(directory: Path) -> None:
    done = run(directory, "--containers", "never")

    assert done.returncode == 2
    assert done.stderr.startswith("error: --containers ")


def test_a_detached_run_is_restarted_by_the_server(directory: Path, server: ServerProcess) -> None:
    run(directory)
    handed = run(directory, "--detach", "--restart")
    watched = katib("watch", "demo", cwd=directory)

    assert handed.returncode == 0, handed.stderr
    assert server.url in handed.stdout
    assert "serve --stop" not in handed.stdout
    assert watched.returncode == 0
    assert {name: count for name, (_, count) in experiments(directory).items()} == {"demo": 4, "demo-1": 4}
