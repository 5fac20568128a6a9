"""The wrapping shell, run by the shells there are."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from katib.injection.command import wrapped
from katib.injection.paths import MetricsPath
from tests.support.pods import expanded

SHELLS = {name: program for name in ("dash", "bash", "busybox") if (program := shutil.which(name)) is not None}

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(params=sorted(SHELLS))
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Start a program as a container with this shell would, in a directory with room for markers."""
    shell = tmp_path / "bin" / "sh"
    shell.parent.mkdir()
    shell.symlink_to(SHELLS[request.param])
    started: list[subprocess.Popen[bytes]] = []

    def start(
        *program: str, to_file: bool = True, may_stop: bool = False, variables: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        directory = tmp_path / "metrics dir"
        directory.mkdir(exist_ok=True)
        path = MetricsPath(str(directory / "metrics.log"), str(directory))
        command, arguments = wrapped(program, path, to_file=to_file, may_stop=may_stop)
        words = [expanded(word, variables or {}) for word in [*command, *arguments]]
        environment = {**os.environ, "PATH": f"{shell.parent}:{os.environ['PATH']}", "katib_signalled": "1"}
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "metrics dir"


def output(directory: Path) -> str:
    return (directory / "metrics.log").read_text()


def marker(directory: Path, process: subprocess.Popen[bytes]) -> str:
    return (directory / f"{process.pid}.pid").read_text().strip()


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.01)


@pytest.mark.parametrize(
    "arguments",
    [
        ["two  blanks", "", "*", "~"],
        ["'single'", '"double"', "`backticks`", "\\back\\slash"],
        ["$HOME", "$1", "$$", "${PATH}"],
        ["a;b", "a&&b", "a|b", ">x", "#no", "new\nline", "-n", "--"],
        ["{'layers': 2, \"sizes\": [1, 2]}", "ü€😀"],
    ],
    ids=["blanks", "quotes", "dollars", "operators", "json"],
)
def test_arguments_reach_the_program_as_they_are(start: Start, directory: Path, arguments: list[str]) -> None:
    program = "import sys; print(ascii(sys.argv[1:]))"
    spelled = [argument.replace("$$", "$$$$") for argument in arguments]  # Kubernetes makes one of two

    process = start(sys.executable, "-c", program, *spelled)

    assert process.wait(20) == 0
    assert output(directory).strip() == ascii(arguments)


@pytest.mark.parametrize("shell", ["sh -c", "/bin/sh -c", "bash -c", "bash -lc", "/bin/bash -ec"])
def test_a_shell_in_the_template_reads_its_own_text(start: Start, directory: Path, shell: str) -> None:
    process = start(*shell.split(), 'x="a  b"; for i in 1 2; do echo "$i $x $0"; done', "name")

    assert process.wait(20) == 0
    assert output(directory) == "1 a  b name\n2 a  b name\n"


def test_references_of_kubernetes_keep_their_meaning(start: Start, directory: Path) -> None:
    process = start("echo", "$(LR)", "$(unknown)", "$$(LR)", variables={"LR": "0.1"})

    assert process.wait(20) == 0
    assert output(directory) == "0.1 $(unknown) $(LR)\n"


def test_the_marker_tells_how_the_program_ended(start: Start, directory: Path) -> None:
    good = start("true")
    bad = start("sh", "-c", "exit 7")
    killed = start("sh", "-c", "kill -9 $$$$")

    assert (good.wait(20), bad.wait(20), killed.wait(20)) == (0, 7, 137)
    assert [marker(directory, process) for process in (good, bad, killed)] == ["completed", "failed", "failed"]


def test_a_program_that_does_not_exist_fails_as_in_a_shell(start: Start, directory: Path) -> None:
    process = start("no-such-program")

    assert process.wait(20) == 127
    assert "not found" in output(directory)


def test_output_stays_with_the_container_when_a_file_is_collected(start: Start, directory: Path) -> None:
    process = start("sh", "-c", "echo out; echo err >&2", to_file=False)

    said, _ = process.communicate(timeout=20)

    assert said == b"out\nerr\n"
    assert not (directory / "metrics.log").exists()


def test_a_restarted_program_writes_behind_its_earlier_output(start: Start, directory: Path) -> None:
    start("echo", "one").wait(20)
    start("echo", "two").wait(20)

    assert output(directory) == "one\ntwo\n"


def test_katibs_collectors_find_the_process_by_its_command_line(start: Start, tmp_path: Path) -> None:
    command, _ = wrapped(
        ["true"], MetricsPath("/var/log/katib/metrics.log", "/var/log/katib"), to_file=True, may_stop=True
    )

    assert "echo completed > /var/log/katib/$$$$.pid" in command[2]


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_the_program_and_its_last_words_are_waited_for(
    start: Start, directory: Path, sent: signal.Signals
) -> None:
    script = "trap 'sleep 0.2; echo saved; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    process = start("bash", "-c", script)
    eventually(lambda: (directory / "metrics.log").exists() and "ready" in output(directory))

    process.send_signal(sent)

    assert process.wait(20) == 3
    assert output(directory) == "ready\nsaved\n"
    assert marker(directory, process) == "failed"


def test_a_program_may_ignore_one_signal_and_heed_the_next(start: Start, directory: Path) -> None:
    script = "n=0; trap 'n=$((n+1)); echo $n; [ $n -lt 2 ] || exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    process = start("bash", "-c", script)
    eventually(lambda: (directory / "metrics.log").exists() and "ready" in output(directory))

    process.send_signal(signal.SIGTERM)
    eventually(lambda: "1" in output(directory))
    process.send_signal(signal.SIGTERM)

    assert process.wait(20) == 0
    assert marker(directory, process) == "completed"


def test_a_program_that_dies_of_the_signal_is_no_success(start: Start, directory: Path) -> None:
    process = start("sleep", "60")
    eventually((directory / "metrics.log").exists)

    process.send_signal(signal.SIGTERM)

    assert process.wait(20) == 143


def test_a_program_that_was_stopped_early_ends_well(start: Start, directory: Path) -> None:
    script = f"echo early-stopped > '{directory}'/$PPID.pid; kill -TERM $$$$"
    process = start("sh", "-c", script, may_stop=True)

    said, _ = process.communicate(timeout=20)

    assert process.returncode == 0
    assert b"Training Container was Early Stopped" in said
    assert marker(directory, process) == "completed"


def test_a_program_with_rules_that_fails_by_itself_fails(start: Start, directory: Path) -> None:
    process = start("sh", "-c", "exit 5", may_stop=True)

    assert process.wait(20) == 5
    assert marker(directory, process) == "failed"


def test_a_directory_that_is_gone_does_not_change_how_the_program_ends(start: Start, directory: Path) -> None:
    process = start("sh", "-c", f"rm -r '{directory}'; exit 4")

    assert process.wait(20) == 4
