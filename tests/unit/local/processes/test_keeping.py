"""Programs that a guard keeps for the next engine. The engine that ends is a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from katib.places.machine.processes import keeping
from katib.places.machine.processes.client import RECORD_FILE, Processes
from katib.places.machine.processes.connection import KeptProcess
from katib.places.machine.processes.handle import ProcessExit
from katib.places.machine.processes.proc import is_running
from katib.places.machine.processes.remains import EngineRecord
from tests.support.processes import marked, read_pid
from tests.support.waiting import eventually

ENGINE = """
import os, sys, threading
from pathlib import Path
from katib.places.machine.processes.client import KeepSettings, Processes
from katib.places.machine.processes.handle import Command

directory, log, limit, grace = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
processes = Processes(directory, grace_seconds=grace)
processes.start()
processes.note("job", b"what is to be known")
for script in sys.argv[5:]:
    read, write = os.pipe()
    keep = KeepSettings("job" if "KEPT" in script else "other", ("pod", script), log, limit, (read,))
    start = processes.launch(
        Command(["sh", "-c", script], dict(os.environ)), write, keep=keep, on_exit=lambda *_: None
    )
    start.answer.result(60)
    os.close(write)
print("ready", flush=True)
sys.stdin.readline()
processes.stop(leaves=True)
"""
"""A stand-in for the engine: starts programs and reads none of their output, then waits for a line to leave."""

LONG = 1 << 20


@contextmanager
def engine(directory: Path, *scripts: str, limit: int = LONG, grace: float = 60.0) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", ENGINE, str(directory), str(directory / "log"), str(limit), str(grace), *scripts]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def record_of(directory: Path) -> EngineRecord:
    record = EngineRecord.read(directory / RECORD_FILE)
    assert record is not None
    return record


@contextmanager
def successor(directory: Path, grace: float = 0.0) -> Iterator[Processes]:
    processes = Processes(directory, grace_seconds=grace)
    processes.start()
    try:
        yield processes
    finally:
        processes.stop()
        assert marked(processes.engine_id) == []


def only_program(processes: Processes) -> KeptProcess:
    assert processes.inherited is not None
    (program,) = processes.inherited.programs
    return program


def end_of(processes: Processes, program: KeptProcess) -> ProcessExit:
    exits: list[ProcessExit] = []
    processes.attach(program, lambda _handle, exit_: exits.append(exit_))
    eventually(lambda: exits, "an exit")
    return exits[0]


def rest_of(program: KeptProcess) -> bytes:
    """Return what is in the pipe until its end."""
    with os.fdopen(program.outputs[0], "rb") as pipe:
        return pipe.read()


GATED = "echo before; until [ -e {0}/go ]; do sleep 0.01; done; echo after; exit 3 # KEPT"


@pytest.mark.parametrize("kills", [True, False], ids=["killed", "leaves"])
def test_a_program_goes_on_and_the_next_engine_sees_its_output_and_its_end(tmp_path: Path, kills: bool) -> None:
    with engine(tmp_path, GATED.format(tmp_path)) as process:
        if kills:
            process.kill()
        else:
            process.communicate(b"\n")
    eventually(lambda: (tmp_path / "log").exists() and (tmp_path / "log").read_bytes() == b"before\n", "the output")

    with successor(tmp_path) as processes:
        program = only_program(processes)
        assert processes.inherited is not None
        assert processes.inherited.notes == {"job": b"what is to be known"}
        assert (program.group, program.status, is_running(program.pid)) == ("job", None, True)
        (tmp_path / "go").touch()
        exit_ = end_of(processes, program)

        assert (exit_.code, exit_.lost) == (3, False)
        assert rest_of(program) == b"after\n"
        assert (tmp_path / "log").read_bytes() == b"before\n"


def test_an_end_while_no_engine_was_there_is_handed_over(tmp_path: Path) -> None:
    with engine(tmp_path, GATED.format(tmp_path)) as process:
        process.kill()
    (tmp_path / "go").touch()
    eventually(lambda: (tmp_path / "log").exists() and b"after" in (tmp_path / "log").read_bytes(), "the output")

    with successor(tmp_path) as processes:
        program = only_program(processes)

        assert end_of(processes, program).code == 3
        assert 0 < program.began <= program.ended
        assert (tmp_path / "log").read_bytes() + rest_of(program) == b"before\nafter\n"


def test_one_engine_after_the_other_goes_on_with_a_program(tmp_path: Path) -> None:
    with engine(tmp_path, GATED.format(tmp_path)) as process:
        process.kill()
    for _ in range(3):
        processes = Processes(tmp_path, grace_seconds=60.0)
        processes.start()
        assert is_running(only_program(processes).pid)
        processes.stop(leaves=True)

    with successor(tmp_path) as processes:
        (tmp_path / "go").touch()
        assert end_of(processes, only_program(processes)).code == 3


def test_what_is_not_kept_ends_with_the_engine(tmp_path: Path) -> None:
    script = "sleep 600 & echo $$ $! > {0}/{1}.new; mv {0}/{1}.new {0}/{1}; wait"
    with engine(tmp_path, script.format(tmp_path, "other"), script.format(tmp_path, "kept") + " # KEPT") as process:
        files = [tmp_path / "other", tmp_path / "kept"]
        eventually(lambda: all(file.exists() for file in files), "both programs")
        others, kept = (list(map(int, file.read_text().split())) for file in files)
        process.kill()

        eventually(lambda: not any(map(is_running, others)), "the end of what is not kept")
        assert all(map(is_running, kept))

    with successor(tmp_path):
        pass
    assert not any(map(is_running, kept))


@pytest.mark.parametrize("scripts", [("sleep 600 # KEPT",), ("exit 0 # KEPT", "sleep 600 # KEPT")], ids=["one", "two"])
def test_after_the_grace_period_the_guard_ends_everything_and_itself(tmp_path: Path, scripts: tuple[str, ...]) -> None:
    with engine(tmp_path, *scripts, grace=0.5) as process:
        record = record_of(tmp_path)
        process.kill()

    eventually(lambda: not marked(record.engine_id) and not is_running(record.guard_pid), "the end of everything")
    with successor(tmp_path) as processes:
        assert processes.inherited is None


def test_a_guard_that_keeps_nothing_ends_at_once(tmp_path: Path) -> None:
    with engine(tmp_path, "sleep 600", grace=600.0) as process:
        record = record_of(tmp_path)
        process.kill()

    eventually(lambda: not is_running(record.guard_pid), "the end of the guard")


def test_nothing_outlives_an_engine_and_its_guard_that_are_killed(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; wait # KEPT"
    with engine(tmp_path, script) as process:
        program, record = read_pid(tmp_path / "pid"), record_of(tmp_path)
        process.kill()
        os.kill(record.guard_pid, signal.SIGKILL)

        eventually(lambda: not is_running(program), "the end of the program")
    with successor(tmp_path) as processes:  # it ends what the program had started
        assert processes.inherited is None
        assert marked(record.engine_id) == []


def test_a_program_that_prints_more_than_its_log_may_hold_waits_for_the_next_engine(tmp_path: Path) -> None:
    size = 1 << 20
    with engine(tmp_path, f"head -c {size} /dev/zero; exit 5 # KEPT", limit=100_000) as process:
        process.kill()
    eventually(lambda: (tmp_path / "log").exists() and (tmp_path / "log").stat().st_size == 100_000, "a full log")

    with successor(tmp_path) as processes:
        program = only_program(processes)
        assert program.status is None
        rest = rest_of(program)

        assert end_of(processes, program).code == 5
        assert len(rest) + 100_000 == size


def test_a_guard_of_another_version_is_ended_with_all_that_it_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine(tmp_path, "sleep 600 # KEPT") as process:
        record = record_of(tmp_path)
        process.kill()
    monkeypatch.setattr("katib.places.machine.processes.keeping.VERSION", keeping.VERSION + 1)

    with successor(tmp_path) as processes:
        assert processes.inherited is None
        assert processes.engine_id != record.engine_id
        assert marked(record.engine_id) == []


def test_a_program_is_lost_with_the_guard_that_was_taken_over(tmp_path: Path) -> None:
    with engine(tmp_path, "sleep 600 # KEPT") as process:
        record = record_of(tmp_path)
        process.kill()

    with successor(tmp_path, grace=60.0) as processes:
        program = only_program(processes)
        assert processes.is_kept("job")
        os.kill(record.guard_pid, signal.SIGKILL)

        assert end_of(processes, program).lost
        assert not processes.is_kept("job")
        eventually(lambda: not is_running(program.pid), "the end of the program")


def test_the_socket_is_for_its_owner_only_and_its_directory_may_be_anywhere(tmp_path: Path) -> None:
    directory = tmp_path / ("a" * 100) / ("b" * 100)
    directory.mkdir(parents=True)
    with engine(directory, "sleep 600 # KEPT") as process:
        process.kill()

    assert (directory / "guard.sock").stat().st_mode & 0o777 == 0o600
    with successor(directory) as processes:
        assert is_running(only_program(processes).pid)
