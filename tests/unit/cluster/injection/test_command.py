"""The wrapping shell, run by the shells there are."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from katib.cluster.injection.command import Patience, wrapped
from katib.cluster.injection.settings import MetricsPath
from tests.support.pods import expanded
from tests.support.waiting import eventually

SHELLS = {name: program for name in ("dash", "bash", "busybox") if (program := shutil.which(name)) is not None}

LONG = Patience(seconds=600, grace_seconds=4)

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(params=sorted(SHELLS))
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Start a program as a container with this shell would, in a directory with room for markers."""
    shell = tmp_path / "bin" / "sh"
    shell.parent.mkdir()
    shell.symlink_to(SHELLS[request.param])
    started: list[subprocess.Popen[bytes]] = []

    def start(
        *program: str,
        to_file: bool = True,
        may_stop: bool = False,
        patience: Patience | None = None,
        variables: Mapping[str, str] | None = None,
        path: str = os.environ["PATH"],
        shared: str = "",
    ) -> subprocess.Popen[bytes]:
        directory = tmp_path / "metrics dir"
        directory.mkdir(exist_ok=True)
        place = MetricsPath(str(directory / "metrics.log"), str(directory))
        command, arguments = wrapped(
            program, place, to_file=to_file, may_stop=may_stop, patience=patience, shared=shared
        )
        words = [expanded(word, variables or {}) for word in [*command, *arguments]]
        environment = {**os.environ, "PATH": f"{shell.parent}:{path}", "katib_signalled": "1", "katib_told": "1"}
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):  # with what it started, which may wait for longer
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "metrics dir"


def output(directory: Path) -> str:
    return (directory / "metrics.log").read_text()


def marker(directory: Path, process: subprocess.Popen[bytes]) -> str:
    return (directory / f"{process.pid}.pid").read_text().strip()


def await_output(directory: Path, word: str) -> None:
    eventually(lambda: (directory / "metrics.log").exists() and word in output(directory))


def await_completed(directory: Path, process: subprocess.Popen[bytes]) -> None:
    eventually(lambda: (directory / f"{process.pid}.pid").exists() and marker(directory, process) == "completed")


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

    assert process.wait(60) == 0
    assert output(directory).strip() == ascii(arguments)


@pytest.mark.parametrize("shell", ["sh -c", "/bin/sh -c", "bash -c", "bash -lc", "/bin/bash -ec"])
def test_a_shell_in_the_template_reads_its_own_text(start: Start, directory: Path, shell: str) -> None:
    process = start(*shell.split(), 'x="a  b"; for i in 1 2; do echo "$i $x $0"; done', "name")

    assert process.wait(60) == 0
    assert output(directory) == "1 a  b name\n2 a  b name\n"


def test_references_of_kubernetes_keep_their_meaning(start: Start, directory: Path) -> None:
    process = start("echo", "$(LR)", "$(unknown)", "$$(LR)", variables={"LR": "0.1"})

    assert process.wait(60) == 0
    assert output(directory) == "0.1 $(unknown) $(LR)\n"


def test_the_marker_says_how_the_program_ended(start: Start, directory: Path) -> None:
    good = start("true")
    bad = start("sh", "-c", "exit 7", may_stop=True)
    killed = start("sh", "-c", "kill -9 $$$$", patience=LONG)  # what failed does not wait

    assert (good.wait(60), bad.wait(60), killed.wait(60)) == (0, 7, 137)
    assert [marker(directory, process) for process in (good, bad, killed)] == ["completed", "failed 7", "failed 137"]


@pytest.mark.parametrize("code", [0, 7])
def test_what_a_program_leaves_in_a_shared_directory_can_be_read_by_all_users(
    start: Start, directory: Path, tmp_path: Path, code: int
) -> None:
    shared = tmp_path / "check points"
    shared.mkdir()
    leave = f"umask 077; mkdir '{shared}/deep'; echo 1 > '{shared}/deep/model'; exit {code}"

    process = start("sh", "-c", leave, shared=str(shared), may_stop=True)

    assert process.wait(60) == code
    assert marker(directory, process) == (f"failed {code}" if code else "completed")
    modes = [path.stat().st_mode & 0o777 for path in (shared / "deep", shared / "deep" / "model")]
    assert modes == [0o755, 0o644]


def test_a_shared_directory_that_is_gone_changes_nothing(start: Start, directory: Path, tmp_path: Path) -> None:
    process = start("true", shared=str(tmp_path / "gone"), to_file=False)

    said, _ = process.communicate(timeout=60)
    assert (process.returncode, said, marker(directory, process)) == (0, b"", "completed")


def test_a_program_that_does_not_exist_fails_as_in_a_shell(start: Start, directory: Path) -> None:
    process = start("no-such-program")

    assert process.wait(60) == 127
    assert "not found" in output(directory)


def test_output_stays_with_the_container_when_a_file_is_collected(start: Start, directory: Path) -> None:
    process = start("sh", "-c", "echo out; echo err >&2", to_file=False)

    said, _ = process.communicate(timeout=60)

    assert said == b"out\nerr\n"
    assert not (directory / "metrics.log").exists()


def test_a_restarted_program_writes_behind_its_earlier_output(start: Start, directory: Path) -> None:
    start("echo", "one").wait(60)
    start("echo", "two").wait(60)

    assert output(directory) == "one\ntwo\n"


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_reaches_the_program_and_its_last_words_are_waited_for(
    start: Start, directory: Path, sent: signal.Signals
) -> None:
    script = "trap 'sleep 0.2; echo saved; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    process = start("bash", "-c", script)
    await_output(directory, "ready")

    process.send_signal(sent)

    assert process.wait(60) == 3
    assert output(directory) == "ready\nsaved\n"
    assert marker(directory, process) == "failed 3"


def test_a_program_may_ignore_one_signal_and_heed_the_next(start: Start, directory: Path) -> None:
    script = "n=0; trap 'n=$((n+1)); echo $n; [ $n -lt 2 ] || exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    process = start("bash", "-c", script)
    await_output(directory, "ready")

    process.send_signal(signal.SIGTERM)
    eventually(lambda: "1" in output(directory))
    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 0
    assert marker(directory, process) == "completed"


def test_a_program_that_dies_of_the_signal_is_no_success(start: Start, directory: Path) -> None:
    process = start("sleep", "60")
    eventually((directory / "metrics.log").exists)

    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 143


def test_a_program_that_was_stopped_early_ends_well(start: Start, directory: Path) -> None:
    script = f"echo early-stopped > '{directory}'/$PPID.pid; kill -TERM $$$$"
    process = start("sh", "-c", script, may_stop=True)

    said, _ = process.communicate(timeout=60)

    assert process.returncode == 0
    assert b"Training Container was Early Stopped" in said
    assert marker(directory, process) == "completed"


def test_a_directory_that_is_gone_does_not_change_how_the_program_ends(start: Start, directory: Path) -> None:
    process = start("sh", "-c", f"rm -r '{directory}'; exit 4")

    assert process.wait(60) == 4


# --- waiting for the collector ----------------------------------------------------------------------------------------


def collected(directory: Path, process: subprocess.Popen[bytes]) -> Path:
    return directory / f"{process.pid}.collected"


@pytest.mark.parametrize("word", ["stored", "given-up"])
def test_a_program_that_ended_well_waits_for_the_word_of_the_collector(
    start: Start, directory: Path, word: str
) -> None:
    process = start("echo", "loss=1", patience=LONG)
    await_completed(directory, process)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    assert collected(directory, process).stat().st_mode & 0o777 == 0o666  # the collector may be another user

    collected(directory, process).write_text(f"{word}\n")

    assert process.wait(60) == 0


def test_the_word_of_an_earlier_run_with_the_same_number_does_not_count(start: Start, directory: Path) -> None:
    # The number of the next process is not known before, but a shell can replace itself.
    script = f"echo stored > '{directory}'/$$$$.collected; exec \"$@\""
    command, arguments = wrapped(
        ["true"], MetricsPath(str(directory / "m"), str(directory)), to_file=False, may_stop=False, patience=LONG
    )
    inner = [expanded(word, {}).replace("$", "$$") for word in [*command, *arguments]]
    process = start("bash", "-c", script, "bash", *inner)
    eventually(lambda: any(path.read_text() == "awaited\n" for path in directory.glob("*.collected")))

    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)


def test_the_wait_is_bounded(start: Start, directory: Path) -> None:
    """By the patience, and a minute more, which the test takes away."""
    assert start("true", patience=Patience(seconds=-59, grace_seconds=4)).wait(60) == 0


def test_a_signal_ends_the_wait_within_the_grace_period_and_is_no_success(start: Start, directory: Path) -> None:
    process = start("true", patience=LONG)
    await_completed(directory, process)

    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 143


def test_a_program_that_is_told_to_end_may_still_be_collected_from(start: Start, directory: Path) -> None:
    process = start("bash", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done", patience=LONG)
    await_output(directory, "ready")

    process.send_signal(signal.SIGTERM)
    eventually(lambda: marker(directory, process) == "completed")
    collected(directory, process).write_text("stored\n")

    assert process.wait(60) == 0


@pytest.mark.parametrize("loss", ["rm -r '{}'", "rm '{}'/*.collected"], ids=["directory", "file"])
def test_a_collector_that_cannot_answer_is_not_waited_for(start: Start, directory: Path, loss: str) -> None:
    assert start("sh", "-c", loss.format(directory), patience=LONG).wait(60) == 0


def test_a_word_that_the_collector_wrote_in_the_last_moment_is_replaced(start: Start, directory: Path) -> None:
    """It stops the program just when it ends by itself, and then sees a program that is being stopped forever."""
    process = start("true", patience=LONG)
    await_completed(directory, process)

    (directory / f"{process.pid}.pid").write_text("early-stopped\n")

    eventually(lambda: marker(directory, process) == "completed")


def test_an_image_without_sleep_does_not_wait_busily(start: Start, directory: Path, tmp_path: Path) -> None:
    own = [tmp_path / "bin" / "sh", "-c", "sleep 0 2>/dev/null"]
    if subprocess.run(own, env={"PATH": "/nowhere"}, check=False).returncode == 0:
        pytest.skip("this shell sleeps without a program")
    assert start("/bin/true", patience=LONG, path="/nowhere").wait(60) == 0
