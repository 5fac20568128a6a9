"""Who holds a data directory: across processes, forks and crashes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from katib.errors import TerminalError
from katib.places.machine import claims
from katib.places.machine.claims import HeldError, claimed, in_turn
from tests.support.processes import Launch

HOLDER = """
import sys, time
from pathlib import Path
from katib.places.machine import claims
from katib.places.machine.claims import HeldError, claimed, in_turn
with claimed(Path(sys.argv[1])):
    {then}
    print("held", flush=True)
    time.sleep(60)
"""
FORK = """import os
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, b".")
        time.sleep(60)
    os.read(reader, 1)  # the child has given up its share of the lock"""


def hold(launch: Launch, directory: Path, then: str = "pass") -> subprocess.Popen[str]:
    """Start a process that holds a directory, and return when it does."""
    program = HOLDER.format(then=then)
    process = launch(
        [sys.executable, "-c", program, str(directory)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_a_directory_is_held_by_one_engine_of_a_process(tmp_path: Path) -> None:
    with claimed(tmp_path):
        with pytest.raises(TerminalError, match=r"of this process .*; wait .* or close\(\) the exp"), claimed(tmp_path):
            pass
        with pytest.raises(TerminalError), claimed(tmp_path):  # the refusal gave nothing away
            pass
    with claimed(tmp_path):
        pass


def test_the_process_that_holds_a_directory_is_named_with_its_command(tmp_path: Path, launch: Launch) -> None:
    holder = hold(launch, tmp_path)
    try:
        with pytest.raises(TerminalError, match=rf"another engine \(process {holder.pid}: -c .*\) is at work in"):
            claimed(tmp_path).__enter__()
    finally:
        end(holder)


def test_a_turn_is_waited_for_and_said_once(tmp_path: Path, launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_UNSAID_SECONDS", 0.0)
    holder, said, pauses = hold(launch, tmp_path), [], 0

    def pause(_seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 3:
            end(holder)

    with in_turn(lambda: _entered(tmp_path), said.append, pause):
        pass

    assert pauses == 3
    assert said == [f"waiting for -c {tmp_path} (process {holder.pid})"]


def test_a_program_never_waits_for_itself_or_for_one_that_started_it(tmp_path: Path) -> None:
    with claimed(tmp_path):
        with pytest.raises(HeldError):
            in_turn(lambda: _entered(tmp_path), str)
        if (child := os.fork()) == 0:
            with contextlib.suppress(HeldError):
                in_turn(lambda: _entered(tmp_path), str)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0  # it ended


def _entered(directory: Path) -> ExitStack:
    with ExitStack() as opened:
        opened.enter_context(claimed(directory))
        return opened.pop_all()


def test_an_owner_that_crashed_does_not_block(tmp_path: Path, launch: Launch) -> None:
    end(hold(launch, tmp_path))

    with claimed(tmp_path):
        pass


def test_a_forked_child_of_a_crashed_owner_does_not_block(tmp_path: Path, launch: Launch) -> None:
    holder = hold(launch, tmp_path, FORK)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    try:
        with claimed(tmp_path):
            pass
    finally:
        end(holder)


def test_of_many_processes_that_come_at_once_one_gets_the_directory(tmp_path: Path, launch: Launch) -> None:
    program = HOLDER.format(then="pass").replace("time.sleep(60)", "sys.stdin.read()")
    processes = [
        launch(
            [sys.executable, "-c", program, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(4)
    ]
    outputs = []
    for process in processes:
        assert process.stdout is not None
        outputs.append(process.stdout.readline())
    for process in processes:
        process.communicate()

    assert sorted(outputs) == ["", "", "", "held\n"]
