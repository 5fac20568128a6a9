from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from katib.errors import TerminalError, UnavailableError
from katib.places.machine.processes import proc, wire
from katib.places.machine.processes.client import Processes
from katib.places.machine.processes.handle import SpawnError
from katib.places.machine.processes.proc import is_running
from tests.support.golden import Golden
from tests.support.processes import engine, marked, read_pid, start, start_daemon
from tests.support.waiting import eventually


@pytest.fixture(name="processes")
def _processes() -> Iterator[Processes]:
    processes = Processes()
    processes.start()
    yield processes
    processes.stop()
    assert marked(processes.engine_id) == []


def guard_of(processes: Processes) -> int:
    assert processes._connection is not None
    return processes._connection.pid


class TestStarting:
    def test_a_program_gets_its_arguments_environment_and_directory(self, processes: Processes, tmp_path: Path) -> None:
        output = tmp_path / "out"

        exit_ = start(
            processes,
            *("sh", "-c", 'echo "$0 $1 $WORD $(pwd) $KATIB_ENGINE_ID"', "a b", "c"),
            env={"PATH": os.environ["PATH"], "WORD": "grün"},
            cwd=tmp_path,
            output=output,
        ).wait()

        assert exit_.code == 0
        assert output.read_text() == f"a b c grün {tmp_path} {processes.engine_id}\n"

    def test_a_program_leads_a_session_of_its_own(self, processes: Processes) -> None:
        process = start(processes, "sleep", "60")

        stat = proc.read_stat(process.handle.pid)

        assert stat is not None
        assert (stat.session, stat.group, stat.start_time) == (
            process.handle.pid,
            process.handle.pid,
            process.handle.start_time,
        )

    def test_a_program_inherits_no_descriptors_and_default_signals(self, processes: Processes, tmp_path: Path) -> None:
        output = tmp_path / "out"

        start(processes, "sh", "-c", "ls /proc/self/fd; grep SigIgn /proc/self/status", output=output).wait()

        *descriptors, _, ignored = output.read_text().split()
        belongs_to_the_c_library = 0b11 << 31  # signals 32 and 33, which no program can set
        # The fourth descriptor is the directory that ls is reading.
        assert descriptors == ["0", "1", "2", "3"]
        assert int(ignored, 16) & ~belongs_to_the_c_library == 0

    def test_an_environment_beyond_one_packet_arrives_whole(self, processes: Processes, tmp_path: Path) -> None:
        output = tmp_path / "out"
        env = {"PATH": os.environ["PATH"]} | {f"V{i}": "x" * 100_000 for i in range(10)}

        start(processes, "sh", "-c", "echo ${#V0} ${#V9}", env=env, output=output).wait()

        assert output.read_text() == "100000 100000\n"

    def test_a_missing_command_is_named_with_a_remedy(self, processes: Processes) -> None:
        with pytest.raises(SpawnError) as caught:
            start(processes, "foo", env={"PATH": "/bin"})

        assert caught.value.origin == "command-not-found"
        assert str(caught.value) == (
            'command "foo" not found on this machine (PATH is /bin); '
            "install it or give its path, or run the image with --containers auto where podman or docker is installed"
        )

    def test_a_long_path_is_named_by_its_beginning(self, processes: Processes, golden: Golden) -> None:
        with golden.raises(SpawnError):
            start(processes, "foo", env={"PATH": "/venv/bin:/usr/bin:/bin"})

    @pytest.mark.parametrize(
        ("mode", "text", "origin", "cause"),
        [
            pytest.param(0o644, "#!/bin/sh\n", "command-not-executable", "may not be executed", id="no-x-bit"),
            pytest.param(0o755, "#!/no/such\n", "command-not-found", "the interpreter in the first line", id="shebang"),
            pytest.param(0o755, "junk", "spawn-failed", "is not a program of this machine", id="no-program"),
        ],
    )
    def test_a_file_that_cannot_run_says_why(
        self, processes: Processes, tmp_path: Path, mode: int, text: str, origin: str, cause: str
    ) -> None:
        script = tmp_path / "script"
        script.write_text(text)
        script.chmod(mode)

        with pytest.raises(SpawnError, match=cause) as caught:
            start(processes, "./script", cwd=tmp_path)

        assert caught.value.origin == origin

    @pytest.mark.parametrize(
        ("words", "cwd", "origin", "cause"),
        [
            (("true",), "/no/such", "directory-missing", 'working directory "/no/such" does not exist'),
            (("true", "x" * 3_000_000), "/", "command-too-long", "are too long for this machine"),
        ],
        ids=["directory", "arguments"],
    )
    def test_what_keeps_a_program_from_starting_is_told_apart(
        self, processes: Processes, words: tuple[str, ...], cwd: str, origin: str, cause: str
    ) -> None:
        with pytest.raises(SpawnError, match=cause) as caught:
            start(processes, *words, cwd=Path(cwd))

        assert caught.value.origin == origin

    def test_nothing_starts_after_the_stop(self) -> None:
        processes = Processes()
        processes.start()
        processes.stop()

        with pytest.raises(UnavailableError):
            start(processes, "true")

    def test_many_threads_may_start_processes(self, processes: Processes) -> None:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(8) as pool:
            codes = list(pool.map(lambda n: start(processes, "sh", "-c", f"exit {n}").wait().code, range(40)))

        assert codes == list(range(40))


class TestEnding:
    @pytest.mark.parametrize(
        ("script", "expected"),
        [("exit 3", (3, 0, False, "exited with 3")), ("kill -9 $$", (137, 9, False, "was killed by SIGKILL"))],
        ids=["exit code", "signal"],
    )
    def test_how_it_ended_is_reported(
        self, processes: Processes, script: str, expected: tuple[int, int, bool, str]
    ) -> None:
        process = start(processes, "sh", "-c", script)
        exit_ = process.wait()

        assert (exit_.code, exit_.signal, exit_.remains, str(exit_)) == expected
        assert processes.kill_tree(process.handle).result(60) is None  # at once

    def test_a_signal_reaches_the_whole_group(self, processes: Processes, tmp_path: Path) -> None:
        pid_file = tmp_path / "pid"
        process = start(processes, "sh", "-c", f"sleep 600 & echo $! >{pid_file}; wait")
        child = read_pid(pid_file)

        processes.signal(process.handle, signal.SIGTERM)

        assert process.wait().signal == signal.SIGTERM
        eventually(lambda: not is_running(child))

    def test_a_signal_reaches_a_daemon_that_left_its_group(self, processes: Processes, tmp_path: Path) -> None:
        process = start_daemon(processes, tmp_path / "pid", stay=True)
        daemon = read_pid(tmp_path / "pid")

        processes.signal(process.handle, signal.SIGTERM)

        eventually(lambda: not is_running(daemon))

    def test_a_daemon_left_behind_is_announced_and_killed(self, processes: Processes, tmp_path: Path) -> None:
        process = start_daemon(processes, tmp_path / "pid")
        exit_ = process.wait()
        daemon = read_pid(tmp_path / "pid")

        assert exit_.remains
        assert is_running(daemon)

        processes.kill_tree(process.handle).result(60)

        assert not is_running(daemon)

    def test_a_tree_that_ignores_polite_signals_is_killed(self, processes: Processes, tmp_path: Path) -> None:
        pid_file = tmp_path / "pid"
        process = start(
            processes, "sh", "-c", f"trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >{pid_file}; sleep 600'; sleep 600"
        )
        child = read_pid(pid_file)
        processes.signal(process.handle, signal.SIGTERM)

        processes.kill_tree(process.handle).result(60)

        assert process.wait().signal == signal.SIGKILL
        assert not is_running(child)

    def test_killing_one_tree_spares_the_others(self, processes: Processes, tmp_path: Path) -> None:
        kept = start_daemon(processes, tmp_path / "kept", stay=True)
        kept_daemon = read_pid(tmp_path / "kept")
        gone = start_daemon(processes, tmp_path / "gone", stay=True)
        gone_daemon = read_pid(tmp_path / "gone")

        processes.kill_tree(gone.handle).result(60)

        assert not is_running(gone_daemon)
        assert is_running(kept_daemon)
        assert is_running(kept.handle.pid)

    def test_a_daemon_without_mark_is_killed_with_the_last_process(self, processes: Processes, tmp_path: Path) -> None:
        """It cleared its environment and left its session: nothing says whose it was."""
        pid_file = tmp_path / "pid"
        other = start(processes, "sleep", "600")
        process = start(processes, "env", "-i", "setsid", "-f", "/bin/sh", "-c", f"echo $$ >{pid_file}; exec sleep 600")
        daemon = read_pid(pid_file)
        process.wait()
        processes.kill_tree(process.handle).result(60)

        assert is_running(daemon)

        processes.kill_tree(other.handle).result(60)

        eventually(lambda: not is_running(daemon))


class TestDisasters:
    def test_nothing_outlives_an_engine_that_is_killed(self, tmp_path: Path) -> None:
        with engine(tmp_path / "engine", tmp_path / "pid") as process:
            engine_id = json.loads((tmp_path / "engine" / "engine.json").read_text())["engine_id"]
            assert len(marked(engine_id)) == 3  # the guard, the process, its daemon
            process.send_signal(signal.SIGKILL)

            eventually(lambda: not marked(engine_id), "processes outlived their engine")

    @pytest.mark.parametrize("guard_died_before", [False, True], ids=["first guard", "second guard"])
    def test_what_an_engine_left_to_be_done_is_done_after_its_processes_have_ended(
        self, tmp_path: Path, guard_died_before: bool
    ) -> None:
        alive = f'kill -0 "$(cat {tmp_path}/pid)" 2>/dev/null && echo alive || echo ended'
        with engine(tmp_path / "engine", tmp_path / "pid", f"({alive}) > {tmp_path}/last") as process:
            if guard_died_before:
                record = tmp_path / "engine" / "engine.json"
                first = json.loads(record.read_text())["guard_pid"]
                os.kill(first, signal.SIGKILL)
                eventually(lambda: json.loads(record.read_text())["guard_pid"] != first)
            process.send_signal(signal.SIGKILL)

            eventually(lambda: (tmp_path / "last").exists() and (tmp_path / "last").read_text() == "ended\n")

    def test_the_name_server_of_all_containers_outlives_the_process_that_started_it_and_its_engine(
        self, tmp_path: Path
    ) -> None:
        program = tmp_path / "aardvark-dns"
        shutil.copy("/bin/sleep", program)
        processes = Processes()
        processes.start()
        try:
            script = (
                f"setsid {program} 600 >/dev/null & "
                f'until [ "$(cat /proc/$!/comm)" = aardvark-dns ]; do sleep 0.01; done; '
                f"echo $! > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid"
            )
            process = start(processes, "sh", "-c", script)
            assert not process.wait().remains
            processes.kill_tree(process.handle).result(60)
            server = read_pid(tmp_path / "pid")
            assert is_running(server)
        finally:
            processes.stop()

        assert is_running(server)
        os.kill(server, signal.SIGKILL)

    @pytest.mark.parametrize("taken_back", [False, True])
    def test_an_engine_that_stops_can_take_back_what_was_to_be_done(self, tmp_path: Path, taken_back: bool) -> None:
        processes = Processes()
        processes.start()
        with ExitStack() as stack:
            stack.enter_context(processes.executing_last(["/bin/touch", str(tmp_path / "last")], {}))
            if taken_back:
                stack.close()
            processes.stop()

        assert (tmp_path / "last").exists() != taken_back

    def test_a_killed_guard_is_replaced_and_its_processes_are_reported(
        self, processes: Processes, tmp_path: Path
    ) -> None:
        process = start_daemon(processes, tmp_path / "pid", stay=True)
        daemon = read_pid(tmp_path / "pid")
        first_guard = guard_of(processes)

        os.kill(first_guard, signal.SIGKILL)

        exit_ = process.wait()
        assert (exit_.code, exit_.lost, str(exit_)) == (137, True, "was lost with the guard process")
        assert not Path(f"/proc/{process.handle.pid}").exists()  # nor is it a zombie
        assert not is_running(daemon)
        assert start(processes, "sh", "-c", "exit 5").wait().code == 5
        assert guard_of(processes) != first_guard

    def test_a_start_survives_the_death_of_the_guard(self, processes: Processes) -> None:
        guard = guard_of(processes)
        os.kill(guard, signal.SIGSTOP)
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(lambda: start(processes, "sh", "-c", "exit 4").wait())
            eventually(lambda: processes._starting)
            os.kill(guard, signal.SIGKILL)

            assert pending.result(60).code == 4

    def test_the_next_engine_cleans_up_when_engine_and_guard_died_together(self, tmp_path: Path) -> None:
        directory = tmp_path / "engine"
        with engine(directory, tmp_path / "pid") as process:
            daemon = read_pid(tmp_path / "pid")
            guard = json.loads((directory / "engine.json").read_text())["guard_pid"]
            os.kill(guard, signal.SIGSTOP)
            process.send_signal(signal.SIGKILL)
            os.kill(guard, signal.SIGKILL)
            process.wait()
        eventually(lambda: not is_running(guard))
        assert is_running(daemon)

        successor = Processes(directory)
        remains = successor.start()
        successor.stop()

        assert remains >= 1
        assert not is_running(daemon)

    def test_two_engines_do_not_share_a_directory(self, tmp_path: Path) -> None:
        with engine(tmp_path / "engine", tmp_path / "pid"), pytest.raises(TerminalError, match="another engine"):
            Processes(tmp_path / "engine").start()

    def test_an_unreadable_note_of_the_last_engine_is_no_obstacle(self, tmp_path: Path) -> None:
        (tmp_path / "engine.json").write_text("{")
        processes = Processes(tmp_path)

        assert processes.start() == 0

        processes.stop()
        assert not (tmp_path / "engine.json").exists()


def test_a_copy_of_the_socket_in_a_forked_child_does_not_keep_the_guard_alive(tmp_path: Path) -> None:
    """The pidfd tells the guard of the engine's end even when the socket stays open."""
    pid_file = tmp_path / "pid"
    script = f"""
import os, sys, time
from pathlib import Path
from katib.places.machine.processes.client import Processes
from katib.places.machine.processes.handle import Command
processes = Processes(Path({str(tmp_path / "engine")!r}))
processes.start()
null = os.open(os.devnull, os.O_RDWR)
processes.spawn(Command(["sleep", "600"], dict(os.environ)), null, on_exit=lambda *_: None)
if os.fork() == 0:
    Path({str(pid_file)!r}).write_text(str(os.getpid()))
    time.sleep(60)
    os._exit(0)
time.sleep(60)
"""
    import subprocess

    with subprocess.Popen([sys.executable, "-c", script]) as process:
        copy = read_pid(pid_file)
        engine_id = json.loads((tmp_path / "engine" / "engine.json").read_text())["engine_id"]
        process.send_signal(signal.SIGKILL)
        try:
            eventually(lambda: not marked(engine_id), "the guard did not notice the end of its engine")
            assert is_running(copy)
        finally:
            os.kill(copy, signal.SIGKILL)


def test_stopping_while_a_guard_is_replaced_does_not_hang() -> None:
    for _ in range(5):
        processes = Processes()
        processes.start()
        start(processes, "sleep", "600")
        os.kill(guard_of(processes), signal.SIGKILL)

        processes.stop()

        assert marked(processes.engine_id) == []


VALUES = st.recursive(
    st.none() | st.integers() | st.binary(max_size=50) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.binary(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.lists(st.lists(VALUES, min_size=1, max_size=4).map(tuple), min_size=1, max_size=5), st.integers(1, 64))
def test_messages_arrive_whole_however_the_stream_is_cut(messages: list[wire.Message], cut: int) -> None:
    left, right = socket.socketpair()
    with left, right:
        for message in messages:
            wire.send(left, wire.pack(message))
        left.shutdown(socket.SHUT_WR)
        stream = b"".join(iter(lambda: right.recv(1 << 16), b""))
    left, right = socket.socketpair()
    with left, right:
        receiver, got = wire.MessageReceiver(right), []
        for start in range(0, len(stream), cut):
            left.sendall(stream[start : start + cut])
            got += receiver.receive() or []

    assert got == messages


def test_descriptors_arrive_in_order_and_are_not_inherited() -> None:
    left, right = socket.socketpair()
    pipes = [os.pipe() for _ in range(2)]
    with left, right:
        for number, (_, write) in enumerate(pipes):
            wire.send(left, wire.pack(("take", number)), (write,))
        receiver, got = wire.MessageReceiver(right), []
        while len(got) < 2:
            got += receiver.receive() or []
        fds = [receiver.take_fds()[0] for _ in range(2)]

    assert got == [("take", 0), ("take", 1)]
    assert not any(os.get_inheritable(fd) for fd in fds)
    for fd, (read, write) in zip(fds, pipes, strict=True):
        os.write(fd, struct.pack("i", fd))
        assert os.read(read, 4) == struct.pack("i", fd)
        for used in (fd, read, write):
            os.close(used)


def test_the_end_of_the_stream_is_told_apart_from_silence() -> None:
    left, right = socket.socketpair()
    with right:
        left.close()

        assert wire.MessageReceiver(right).receive() is None
