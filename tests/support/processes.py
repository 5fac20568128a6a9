"""Helpers for tests with real processes."""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from katib.places.machine.processes import proc
from katib.places.machine.processes.client import Processes
from katib.places.machine.processes.handle import Command, ProcessExit, ProcessHandle
from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.support.warm import popen

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]):
    time.sleep(0.001)
while len(sys.argv) > 2:
    time.sleep(600)
"""
"""A program that leaves a daemon behind (double fork and setsid); with a second argument it stays itself, too."""

ENGINE = """
import os, sys, threading
from pathlib import Path
from typing import Any, Protocol
from katib.places.machine.processes.client import Processes
from katib.places.machine.processes.handle import Command

directory, pid_file, daemon = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
processes = Processes(directory)
processes.start()
last = processes.executing_last(["/bin/sh", "-c", sys.argv[4]], dict(os.environ))
if sys.argv[4]:
    last.__enter__()
null = os.open(os.devnull, os.O_RDWR)
argv = [sys.executable, "-c", daemon, pid_file, "stay"]
processes.spawn(Command(argv, dict(os.environ)), null, on_exit=lambda *_: None)
print("ready", flush=True)
threading.Event().wait()
"""
"""A stand-in for the engine: starts one process that starts a daemon, then waits to be killed."""


_TGKILL = {"x86_64": 234, "aarch64": 131}


def signal_another_thread(pid: int, number: signal.Signals) -> None:
    """Send a signal that the main thread of a process does not notice while it waits, as one that comes too early."""
    thread = next(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir() if int(task.name) != pid)
    if ctypes.CDLL(None, use_errno=True).syscall(_TGKILL[platform.machine()], pid, thread, int(number)):
        raise OSError(ctypes.get_errno(), "tgkill")


def marked(engine_id: str) -> list[int]:
    """Return the living processes that carry the mark of an engine."""
    return list(proc.pids_with(proc.ENGINE_ID, engine_id))


def read_pid(path: Path) -> int:
    """Return the pid that a process wrote to a file, waiting until it is there."""
    eventually(lambda: path.exists() and path.read_text(), f"{path} was never written")
    return int(path.read_text())


class Launch(Protocol):
    """Starts a program as `subprocess.Popen` does."""

    def __call__(self, command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]: ...


@contextmanager
def launching() -> Iterator[Launch]:
    """Yield what starts programs; those that still run at the end are killed, and all pipes to them are closed.

    A program that outlives a failed test makes tests fail that have nothing to do with it.
    """
    with ExitStack() as started:

        def launch(command: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
            process = started.enter_context(popen(command, **options))
            started.callback(process.kill)
            return process

        yield launch


@dataclass
class Started:
    """A process under test."""

    handle: ProcessHandle
    ended: Future[ProcessExit]

    def wait(self) -> ProcessExit:
        """Return how it ended."""
        return self.ended.result(PATIENCE_SECONDS)


def start(
    processes: Processes,
    *argv: str,
    env: dict[str, str] | None = None,
    cwd: Path = Path("/"),
    output: Path = Path(os.devnull),
) -> Started:
    """Start a program with its output in a file."""
    ended: Future[ProcessExit] = Future()
    fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        handle = processes.spawn(
            Command(argv, dict(os.environ) if env is None else env, cwd),
            fd,
            on_exit=lambda _handle, exit_: ended.set_result(exit_),
        )
    finally:
        os.close(fd)
    return Started(handle, ended)


def start_daemon(processes: Processes, pid_file: Path, *, stay: bool = False) -> Started:
    """Start the program that leaves a daemon behind."""
    return start(processes, sys.executable, "-I", "-S", "-c", DAEMON, str(pid_file), *(["stay"] if stay else []))


@contextmanager
def engine(directory: Path, pid_file: Path, last: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run the stand-in for the engine in a process of its own; yields when its daemon is up.

    Args:
        directory: Of the engine.
        pid_file: Where the daemon writes who it is.
        last: A script that the guard is to execute last.
    """
    command = [sys.executable, "-c", ENGINE, str(directory), str(pid_file), DAEMON, last]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            read_pid(pid_file)
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


@contextmanager
def hanging_program(path: Path) -> Iterator[Path]:
    """Make a program that nobody can start meanwhile: the kernel makes who opens it wait for the holder of a lease.

    That is how a file on a file system that does not answer looks to those who start it. At the end it starts.
    """
    path.write_text("#!/bin/sh\nexec sleep 600\n")
    path.chmod(0o755)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel's request to give it up
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield path
    finally:
        os.close(descriptor)
        signal.signal(signal.SIGIO, before)
