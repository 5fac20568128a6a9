"""What goes wrong with one start must end that start only."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from katib.errors import UnavailableError
from katib.places.machine.processes import connection, proc, wire
from katib.places.machine.processes.client import PendingStart, Processes
from katib.places.machine.processes.handle import Command, ProcessExit
from katib.places.machine.processes.proc import is_running
from tests.support.processes import DAEMON, hanging_program, marked, read_pid, start
from tests.support.waiting import eventually


@pytest.fixture(name="start_seconds")
def _start_seconds() -> float:
    """How long a start may take: here longer than it takes on a busy machine."""
    return 600.0


@pytest.fixture(name="processes")
def _processes(start_seconds: float) -> Iterator[Processes]:
    processes = Processes(start_seconds=start_seconds)
    processes.start()
    yield processes
    processes.stop()
    assert marked(processes.engine_id) == []


def launch(processes: Processes, program: Path, ends: Future[ProcessExit] | None = None) -> PendingStart:
    ends = ends or Future()
    with Path(os.devnull).open("wb") as output:
        return processes.launch(
            Command([str(program)], dict(os.environ)),
            output.fileno(),
            on_exit=lambda _handle, exit_: ends.set_result(exit_),
        )


class TestAFileSystemThatDoesNotAnswer:
    def test_others_start_and_end_meanwhile(self, processes: Processes, tmp_path: Path) -> None:
        with hanging_program(tmp_path / "program") as program:
            hanging = launch(processes, program)

            assert [start(processes, "sh", "-c", f"exit {n}").wait().code for n in (3, 4)] == [3, 4]
            assert not hanging.answer.done()

    @pytest.mark.parametrize("start_seconds", [0.5])
    def test_a_start_has_a_limit_and_names_the_file(self, processes: Processes, tmp_path: Path) -> None:
        with hanging_program(tmp_path / "program") as program:
            hanging = launch(processes, program)

            with pytest.raises(UnavailableError, match=str(program)):
                hanging.answer.result(60)
            eventually(lambda: len(marked(processes.engine_id)) == 1, "the process that hung is still there")

    def test_a_start_can_be_withdrawn(self, tmp_path: Path) -> None:
        processes = Processes()
        processes.start()
        with hanging_program(tmp_path / "program") as program:
            hanging = launch(processes, program)
            processes.withdraw(hanging)

            with pytest.raises(UnavailableError):
                hanging.answer.result(60)
        processes.stop()

    def test_what_starts_when_nobody_waits_any_more_is_killed(self, tmp_path: Path) -> None:
        processes = Processes()
        processes.start()
        ended: Future[ProcessExit] = Future()
        with hanging_program(tmp_path / "program") as program:
            assert launch(processes, program, ended).answer.cancel()
        eventually(lambda: not processes._starting)

        assert start(processes, "true").wait().code == 0
        eventually(lambda: len(marked(processes.engine_id)) == 1)
        processes.stop()
        assert not ended.done()


SHORT_OF_DESCRIPTORS = """
import os, resource, sys
from concurrent.futures import Future
from pathlib import Path
from katib.errors import UnavailableError
from katib.places.machine.processes.client import Processes
from katib.places.machine.processes.handle import Command

limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (36, limits[1]))
processes = Processes()
processes.start()
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
null = os.open(os.devnull, os.O_RDWR)

def launch(*argv, ended=None):
    on_exit = lambda _, exit_: ended and ended.set_result(exit_)
    return processes.launch(Command(argv, dict(os.environ)), null, on_exit=on_exit)

ended = Future()
running = launch("sleep", "600", ended=ended).answer.result(60)
hanging = [launch(sys.argv[1]) for _ in range(60)]
refused = 0
for start in hanging[12:]:
    try:
        start.answer.result(60)
    except UnavailableError:
        refused += 1
for start in hanging[:12]:
    processes.withdraw(start)
for start in hanging[:12]:
    start.answer.exception(60)
codes = []
for number in range(60):
    end = Future()
    launch("sh", "-c", f"exit {number}", ended=end)
    codes.append(end.result(60).code)
processes.kill_tree(running).result(60)
print(refused, codes == list(range(60)), ended.result(60).lost)
processes.stop()
"""


class TestAShortageOfDescriptors:
    def test_the_guard_refuses_starts_and_keeps_what_runs(self, tmp_path: Path) -> None:
        """Its limit leaves room for twelve starts at once; sixty programs hang."""
        with hanging_program(tmp_path / "program") as program:
            command = [sys.executable, "-c", SHORT_OF_DESCRIPTORS, str(program)]
            output = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=180).stdout

        assert output.split() == [b"48", b"True", b"False"]

    def test_descriptors_that_find_no_room_are_not_mistaken_for_those_of_the_next_message(self) -> None:
        left, right = socket.socketpair()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with left, right, Path(os.devnull).open("wb") as null:
            for number in range(2):
                wire.send(left, wire.pack((number,)), [null.fileno()])
            receiver = wire.MessageReceiver(right)
            probe = os.dup(null.fileno())
            os.close(probe)
            resource.setrlimit(resource.RLIMIT_NOFILE, (probe, limits[1]))
            try:
                first, lost = receiver.receive(), receiver.take_fds()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            second, found = receiver.receive(), receiver.take_fds()
            for descriptor in found:
                os.close(descriptor)

        assert (first, lost) == ([(0,)], [])
        assert (second, len(found)) == ([(1,)], 1)


GARBAGE = """
import marshal, os, socket, struct, sys, time
if not os.path.exists({flag!r}):
    open({flag!r}, "w").close()
    engine = socket.socket(fileno=int(sys.argv[1]))
    for message in ("nonsense",), ("started", 99), ("failed", 98, 97, None), ("exited", 96, "x", 1), ("gone", []), ():
        body = marshal.dumps(message)
        engine.sendall(struct.pack("!I", len(body)) + body)
    engine.sendall({broken!r})
    time.sleep(600)
"""


class TestNonsense:
    @pytest.mark.parametrize(
        "broken",
        [
            pytest.param(b"\xff" * 100, id="length"),
            pytest.param(b"\x00\x00\x00\x05zzzzz", id="content"),
            pytest.param(b"\x00\x00\x00\x01N", id="no-tuple"),
        ],
    )
    def test_a_guard_that_sends_nonsense_is_replaced_and_its_starts_are_done_again(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: bytes
    ) -> None:
        launcher = GARBAGE.format(flag=str(tmp_path / "flag"), broken=broken) + connection._LAUNCHER
        monkeypatch.setattr(connection, "_LAUNCHER", launcher)
        processes = Processes()
        processes.start()

        assert start(processes, "sh", "-c", "exit 3").wait().code == 3
        processes.stop()

    def test_an_error_of_one_exit_callback_does_not_reach_the_others(self, processes: Processes) -> None:
        with Path(os.devnull).open("wb") as output:
            processes.spawn(Command(["true"], dict(os.environ)), output.fileno(), on_exit=lambda *_: 1 / 0)

        assert start(processes, "sh", "-c", "exit 3").wait().code == 3


def test_the_mark_of_another_engine_is_not_mistaken_for_ours(processes: Processes, tmp_path: Path) -> None:
    """A program may run an engine of its own, whose processes become ours when its guard dies."""
    ours = start(processes, "sleep", "600")
    env = dict(os.environ)
    script = f"import os; os.environ[{proc.PROCESS_ID!r}] = 'another.{ours.handle.key}'; "
    script += "import sys; os.execv(sys.executable, [sys.executable, '-I', '-S', '-c', *sys.argv[1:]])"
    other = start(processes, sys.executable, "-c", script, DAEMON, str(tmp_path / "pid"), "stay", env=env)
    daemon = read_pid(tmp_path / "pid")

    processes.kill_tree(ours.handle).result(60)

    assert is_running(daemon)
    assert is_running(other.handle.pid)
