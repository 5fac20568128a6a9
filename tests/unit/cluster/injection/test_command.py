"""The launcher as a process of this machine, and Katib's shell as the shells there are run it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from katib.places.cluster.injection.command import katib_shell
from katib.places.cluster.injection.settings import MetricsPath
from katib.places.machine.processes.proc import all_pids, is_running, read_stat
from tests.support.launcher import launcher_binary
from tests.support.pods import expanded, launched_command
from tests.support.waiting import eventually

SHELLS = {name: program for name in ("dash", "bash", "busybox") if (program := shutil.which(name)) is not None}


class Launch:
    """Starts programs below a launcher in one directory, and reads what they leave."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "with blanks $and"
        self.directory.mkdir()
        self.file = self.directory / "metrics.log"
        self._started: list[subprocess.Popen[bytes]] = []

    def __call__(self, *program: str, to_file: bool = True, **options: object) -> subprocess.Popen[bytes]:
        given = {"file": str(self.file) if to_file else "", **options}
        words = launched_command(program, str(self.directory), **given)  # type: ignore[arg-type]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "a.b": "1", "c-d": "2"}
        )
        self._started.append(process)
        return process

    def state(self) -> str:
        path = self.directory / "state"
        return " ".join(path.read_text().split()[1:]) if path.exists() else ""

    def order(self, word: str) -> None:
        run = (self.directory / "state").read_text().split()[0]
        with os.fdopen(os.open(self.directory / "orders", os.O_WRONLY | os.O_NONBLOCK), "w") as pipe:
            pipe.write(f"{word} {int(run) - 1}\n{word} {run}\n")  # the first is for a run that is over

    def await_output(self, word: str) -> None:
        eventually(lambda: self.file.exists() and word in self.file.read_text())

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    launch = Launch(tmp_path)
    yield launch
    launch.close()


# --- the program ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["two  blanks", "", "*", "~"],
        ["'single'", '"double"', "$HOME", "${PATH}", "\\"],
        ["-n", "--", "ü€😀", "new\nline"],
    ],
    ids=["blanks", "quotes", "others"],
)
def test_arguments_reach_the_program_as_they_are(launch: Launch, arguments: list[str]) -> None:
    process = launch(sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", *arguments)

    assert process.communicate(timeout=60) == (f"{arguments!a}\n".encode(), b"")


def test_variables_that_no_shell_knows_reach_the_program(launch: Launch) -> None:
    said, _ = launch("env").communicate(timeout=60)

    assert {b"a.b=1", b"c-d=2"} <= set(said.splitlines())


def test_the_program_starts_as_without_a_launcher(launch: Launch) -> None:
    look = "grep -E '^(Sig(Blk|Ign|Cgt)|Umask)' /proc/self/status; ls /proc/self/fd; pwd"

    bare = subprocess.run(["sh", "-c", look], capture_output=True, check=True)
    launched, _ = launch("sh", "-c", look).communicate(timeout=60)

    assert launched == bare.stdout


# --- how it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code", "state"),
    [
        ("exit 0", 0, "completed 0"),
        ("exit 3", 3, "failed 3"),
        ("exit 137", 137, "failed 137"),
        ("kill -TERM $$", -signal.SIGTERM, "failed 143"),
        ("kill -KILL $$", -signal.SIGKILL, "failed 137"),
        ("kill -SEGV $$", -signal.SIGSEGV, "failed 139"),
    ],
)
def test_codes_and_signals_are_those_of_the_program(launch: Launch, script: str, code: int, state: str) -> None:
    process = launch("sh", "-c", script.replace("$", "$$"))

    process.communicate(timeout=60)

    assert (process.returncode, launch.state()) == (code, state)


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/etc", 126)])
def test_a_program_that_cannot_run_fails_as_in_a_shell(launch: Launch, program: str, code: int) -> None:
    process = launch(program)

    _, said = process.communicate(timeout=60)

    assert (process.returncode, launch.state()) == (code, f"failed {code}")
    assert said.decode() == launch.file.read_text()
    assert said.decode().startswith(f"katib: cannot run {program}: ")


def test_zombies_are_reaped(launch: Launch) -> None:
    orphans = "for i in 1 2 3; do (sleep 0.1 &); done; sleep 0.3; echo ready; exec sleep 60"
    process = launch("sh", "-c", orphans)
    launch.await_output("ready")

    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    eventually(lambda: len(children.read_text().split()) == 1)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH])
def test_a_signal_reaches_the_program_and_its_last_words_are_waited_for(launch: Launch, sent: signal.Signals) -> None:
    script = f"trap 'sleep 0.2; echo saved; exit 3' {sent.value}; echo ready; while :; do sleep 0.05; done"
    process = launch("bash", "-c", script)
    launch.await_output("ready")

    process.send_signal(sent)

    assert process.communicate(timeout=60)[0] == b"ready\nsaved\n"
    assert (process.returncode, launch.state()) == (3, "failed 3")


def test_a_launcher_that_is_killed_takes_the_program_with_it(launch: Launch) -> None:
    process = launch("sh", "-c", "echo $$$$; exec sleep 60")
    launch.await_output("\n")

    process.kill()

    eventually(lambda: not is_running(int(launch.file.read_text())))
    assert launch.state() == "running 0"


# --- output -----------------------------------------------------------------------------------------------------------


def test_many_lines_and_any_bytes_arrive_whole_in_both_places(launch: Launch, tmp_path: Path) -> None:
    lines = b"".join(b"line %d\n" % i for i in range(400_000)) + random.Random(1).randbytes(3_000_000)
    (tmp_path / "sent").write_bytes(lines)

    assert launch("cat", str(tmp_path / "sent")).communicate(timeout=120)[0] == lines
    assert launch.file.read_bytes() == lines


def test_lines_of_two_streams_are_never_mixed(launch: Launch) -> None:
    """Each is written in three parts, in turns with parts of the other stream."""
    talk = (
        "import os\n"
        "for i in range(3000):\n"
        "    for part in (b'on', b'e%d' % i, b'\\n'):\n"
        "        os.write(1, part); os.write(2, part.upper())\n"
        "os.write(1, b'half'); os.write(2, b'HALF')"
    )
    out, err = launch(sys.executable, "-c", talk).communicate(timeout=60)

    found = launch.file.read_text().splitlines()
    expected = [f"one{i}" for i in range(3000)] + ["half"]
    assert (out.decode().splitlines(), err.decode().splitlines()) == (expected, [line.upper() for line in expected])
    assert [line for line in found if line.islower()] == expected
    assert [line for line in found if line.isupper()] == [line.upper() for line in expected]


def test_a_restarted_program_writes_behind_its_earlier_output_on_a_new_line(launch: Launch) -> None:
    launch("printf", "one").communicate(timeout=60)
    launch("printf", "two").communicate(timeout=60)

    assert launch.file.read_text() == "one\ntwo"


def test_output_goes_to_the_container_alone_when_a_file_is_collected(launch: Launch) -> None:
    assert launch("sh", "-c", "echo out; echo err >&2", to_file=False).communicate(timeout=60) == (b"out\n", b"err\n")
    assert not launch.file.exists()


def test_the_end_does_not_wait_for_processes_that_are_left_behind(launch: Launch) -> None:
    process = launch("sh", "-c", "sleep 60 & echo $!; echo last")
    try:
        assert process.wait(50) == 0
        assert launch.file.read_text().endswith("last\n")
    finally:
        os.kill(int(launch.file.read_text().split()[0]), signal.SIGKILL)


def test_a_program_whose_output_cannot_be_stored_is_no_success(launch: Launch) -> None:
    launch.file.symlink_to("/dev/full")

    process = launch("echo", "loss=1")

    assert process.communicate(timeout=60)[0] == b"loss=1\n"
    assert (process.returncode, launch.state()) == (125, "failed 125")


@pytest.mark.parametrize("code", [0, 7])
def test_what_a_program_leaves_in_a_shared_directory_can_be_read_by_all_users(
    launch: Launch, tmp_path: Path, code: int
) -> None:
    shared = tmp_path / "check points"
    shared.mkdir()
    leave = f"umask 077; mkdir '{shared}/deep'; echo 1 > '{shared}/deep/model'; ln -s /etc/shadow '{shared}/link'"

    assert launch("sh", "-c", f"{leave}; exit {code}", shared=str(shared)).wait(60) == code
    assert [path.stat().st_mode & 0o777 for path in (shared / "deep", shared / "deep" / "model")] == [0o755, 0o644]


# --- orders of the collector ------------------------------------------------------------------------------------------


def test_a_program_that_ended_well_waits_for_the_word_of_the_collector(launch: Launch) -> None:
    process = launch("echo", "loss=1", patience_seconds=600)
    eventually(lambda: launch.state() == "completed 0")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    assert (launch.directory / "orders").stat().st_mode & 0o777 == 0o666  # the collector may be another user

    launch.order("done")

    assert process.wait(60) == 0


def test_a_program_that_fails_does_not_wait(launch: Launch) -> None:
    assert launch("false", patience_seconds=600).wait(60) == 1


def test_the_wait_is_bounded(launch: Launch) -> None:
    """By the patience, and a minute more, which the test takes away."""
    assert launch("true", patience_seconds=-59.5).wait(60) == 0


def test_a_signal_ends_the_wait_within_the_grace_period_and_is_no_success(launch: Launch) -> None:
    process = launch("true", patience_seconds=600, grace_seconds=4)
    eventually(lambda: launch.state() == "completed 0")

    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 143


def test_a_program_that_is_told_to_end_may_still_be_collected_from(launch: Launch) -> None:
    script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    process = launch("bash", "-c", script, patience_seconds=600, grace_seconds=400)
    launch.await_output("ready")

    process.send_signal(signal.SIGTERM)
    eventually(lambda: launch.state() == "completed 0")
    launch.order("done")

    assert process.wait(60) == 0


@pytest.mark.parametrize("trap", ["exit 5", ""], ids=["heeds", "ignores"])
def test_a_program_that_is_stopped_early_ends_well_with_all_its_processes(launch: Launch, trap: str) -> None:
    loop = f"trap '{trap}' TERM; echo ready; while :; do sleep 0.05; done"
    process = launch("sh", "-c", f"({loop}) & {loop}", grace_seconds=1)
    launch.await_output("ready\nready")
    group = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])

    launch.order("stop")

    said, _ = process.communicate(timeout=60)
    assert (process.returncode, launch.state()) == (0, "stopped 0")
    assert said.endswith(b"Training Container was Early Stopped\n")
    eventually(
        lambda: not [pid for pid in all_pids() if (stat := read_stat(pid)) and stat.group == group and is_running(pid)]
    )


def test_the_launcher_copies_itself(tmp_path: Path) -> None:
    target = tmp_path / "launch"
    for _ in range(2):  # a collector that is started again copies it once more
        assert subprocess.run([launcher_binary(), "-i", str(target)], umask=0o077, check=False).returncode == 0

    assert target.read_bytes() == Path(launcher_binary()).read_bytes()
    assert target.stat().st_mode & 0o777 == 0o755
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("wrong", [["-d", "/no/where", "--", "true"], ["--", "true"], ["-d", "/tmp"], ["-x"]])
def test_a_launcher_that_cannot_do_its_work_says_why(wrong: list[str]) -> None:
    done = subprocess.run([launcher_binary(), *wrong], capture_output=True, check=False)

    assert done.returncode == 125
    assert done.stderr


# --- Katib's shell ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", sorted(SHELLS))
@pytest.mark.parametrize(
    ("script", "may_stop", "code", "word"),
    [
        ("echo 'a  b'", False, 0, "completed"),
        ("exit 3", False, 3, ""),
        ("exit 3", True, 3, ""),
        ("echo early-stopped > {}/$PPID.pid; exit 3", True, 0, "completed"),
    ],
    ids=["well", "failed", "failed-with-rules", "stopped"],
)
def test_katibs_shell_leaves_what_katibs_collectors_look_for(
    tmp_path: Path, shell: str, script: str, code: int, word: str, *, may_stop: bool
) -> None:
    path = MetricsPath(str(tmp_path / "metrics.log"), str(tmp_path))
    _, *words = [expanded(text, {}) for text in katib_shell(path, to_file=True, may_stop=may_stop)]

    runs = [SHELLS[shell], *(["sh"] if shell == "busybox" else [])]
    process = subprocess.Popen([*runs, *words, "sh", "-c", script.format(tmp_path)])

    assert process.wait(60) == code
    marker = tmp_path / f"{process.pid}.pid"
    assert (marker.read_text().strip() if marker.exists() else "") == word
    with contextlib.suppress(FileNotFoundError):
        assert (tmp_path / "metrics.log").read_text() == ("a  b\n" if "echo 'a" in script else "")
