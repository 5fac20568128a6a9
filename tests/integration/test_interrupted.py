"""Experiments that were cut off: which engine takes them up, and how they are shown until one does."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from katib.doors.rest.client import HttpTuningService
from katib.model.names import ENGINE_ANNOTATION
from katib.service.tuning.states import state_of
from tests.support.cli import KATIB, a_server, environment, katib_here, katib_json
from tests.support.waiting import eventually
from tests.support.warm import WarmPopen

ENDS = pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
PROGRAM = """
import sys, time
from pathlib import Path
name, x = sys.argv[1:]
with open(f"{name}.starts", "a") as starts:
    starts.write(f"{x}\\n")
while not Path(f"{name}.go").exists():
    time.sleep(0.02)
print(f"loss={x}")
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def line(name: str, *options: str) -> list[str]:
    space = ["-p", "x=1,2,3", "--algorithm", "grid", "--trials", "2", "--parallel", "2", "--minimize", "loss"]
    return [*KATIB, "tune", *space, "--name", name, *options, "--", "python", "train.py", name, "{x}"]


def starts(directory: Path, name: str) -> int:
    file = directory / f"{name}.starts"
    return len(file.read_text().split()) if file.exists() else 0


@contextmanager
def running(directory: Path, name: str, programs: int = 2) -> Iterator[WarmPopen]:
    """Run an experiment until so many of its programs were started."""
    with WarmPopen(line(name), cwd=directory, env=environment(), text=True) as process:
        try:
            eventually(lambda: starts(directory, name) == programs, f"programs of {name}")
            yield process
        finally:
            process.kill()


def cut_off(directory: Path, name: str, end: signal.Signals) -> None:
    with running(directory, name) as process:
        process.send_signal(end)
        process.wait(timeout=120)


def states(directory: Path) -> dict[str, str]:
    shown = katib_here("get", cwd=directory).stdout.splitlines()[1:]
    return {row.split()[0]: row.split()[1] for row in shown}


def trial_states(directory: Path, name: str) -> list[str]:
    return [row.split()[1] for row in katib_here("trials", name, cwd=directory).stdout.splitlines()[1:]]


@ENDS
def test_what_was_cut_off_rests_beside_the_next_command_until_it_is_resumed(
    directory: Path, end: signal.Signals
) -> None:
    cut_off(directory, "first", end)
    eventually(lambda: states(directory) == {"first": "Interrupted"})
    assert trial_states(directory, "first") == ["Pending", "Pending"]
    assert katib_here("trials", "first", "--state", "Running", cwd=directory).stdout.count("first") == 0

    with running(directory, "second") as second:
        eventually(lambda: states(directory) == {"first": "Interrupted", "second": "Running"})
        assert trial_states(directory, "first") == ["Pending", "Pending"]
        assert "katib resume first" in katib_here("why", "first", cwd=directory).stdout
        (directory / "second.go").touch()
        assert second.wait(timeout=120) == 0
    assert starts(directory, "first") == 2
    assert states(directory) == {"first": "Interrupted", "second": "Succeeded"}

    with running(directory, "third"):
        assert katib_here("resume", "first", cwd=directory).stdout == "experiment/first: resumed\n"
        eventually(lambda: starts(directory, "first") == 4, "both programs once more")
        (directory / "first.go").touch()
        eventually(lambda: states(directory)["first"] == "Succeeded")


@ENDS
def test_a_server_takes_up_what_a_server_left_and_leaves_what_a_command_left(
    directory: Path, end: signal.Signals
) -> None:
    cut_off(directory, "mine", end)
    with ExitStack() as stack:
        server = stack.enter_context(a_server(directory, "--orphans", "0"))
        done = katib_here(*line("its", "--detach")[1:], cwd=directory)
        assert done.returncode == 0, done.stderr
        eventually(lambda: starts(directory, "its") == 2)
        with HttpTuningService(server.url, server.token) as service:
            shown = {"mine": "Interrupted", "its": "Running"}
            eventually(lambda: {found.name: state_of(found) for found in service.experiments()} == shown)
    eventually(lambda: set(states(directory).values()) == {"Interrupted"})
    with running(directory, "other"):  # a command between two servers changes nothing
        shown = {"mine": "Interrupted", "its": "Interrupted", "other": "Running"}
        eventually(lambda: states(directory) == shown)

    with a_server(directory):
        eventually(lambda: starts(directory, "its") == 4, "the experiment of the server")
        eventually(lambda: states(directory)["mine"] == "Interrupted")
        again = katib_here(*line("mine", "--detach")[1:], cwd=directory)
        assert again.returncode == 0, again.stderr
        eventually(lambda: starts(directory, "mine") == 4, "the experiment of the command")
        for name in ("mine", "its"):
            (directory / f"{name}.go").touch()
            eventually(lambda: states(directory)[name] == "Succeeded")  # noqa: B023 - asked at once
    assert starts(directory, "other") == 2


def test_an_interrupted_experiment_is_changed_where_nothing_works_on_it(directory: Path) -> None:
    cut_off(directory, "first", signal.SIGINT)

    for command, words in (
        (("budget", "first", "--max-trials", "3"), "experiment/first: maxTrialCount 3\n"),
        (("stop", "first"), "experiment/first: stopped after 0 trials\n"),
        (("pause", "first"), "experiment/first: paused, with 2 trials; "),
        (("resume", "first"), "experiment/first: is resumed, and nothing works on it now; `katib serve"),
    ):
        done = katib_here(*command, "--data-dir", ".katib", cwd=directory)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(words)
        expected = "Stopped" if command[0] in ("stop", "pause") else "Interrupted"
        assert states(directory) == {"first": expected}

    with a_server(directory):  # two that were cut off, and no more at once after them
        eventually(lambda: starts(directory, "first") == 4)
        (directory / "first.go").touch()
        eventually(lambda: states(directory) == {"first": "Succeeded"})


def test_an_experiment_that_ended_in_its_command_is_anybodys(directory: Path) -> None:
    (directory / "first.go").touch()
    with running(directory, "first") as process:
        assert process.wait(timeout=120) == 0

    (found,) = katib_json("get", "-o", "json", cwd=directory)["items"]
    assert ENGINE_ANNOTATION not in found["metadata"]["annotations"]
