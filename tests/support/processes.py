"""Helpers for tests with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from katib.processes import proc
from katib.processes.client import Processes
from katib.processes.handle import Exit, ProcessHandle

PATIENCE_SECONDS = 15.0

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
from katib.processes.client import Processes

directory, pid_file, daemon = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
processes = Processes(directory)
processes.start()
null = os.open(os.devnull, os.O_RDWR)
argv = [sys.executable, "-c", daemon, pid_file, "stay"]
processes.spawn(argv, dict(os.environ), Path("/"), null, null, on_exit=lambda *_: None)
print("ready", flush=True)
threading.Event().wait()
"""
"""A stand-in for the engine: starts one process that starts a daemon, then waits to be killed."""


def wait_until(holds: Callable[[], object], what: str = "") -> None:
    """Poll until something holds; fail the test when it does not in good time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what or "waited in vain"
        time.sleep(0.005)


def marked(engine_id: str) -> list[int]:
    """Return the living processes that carry the mark of an engine."""
    return list(proc.pids_with(proc.ENGINE_ID, engine_id))


def read_pid(path: Path) -> int:
    """Return the pid that a process wrote to a file, waiting until it is there."""
    wait_until(lambda: path.exists() and path.read_text(), f"{path} was never written")
    return int(path.read_text())


@dataclass
class Started:
    """A process under test."""

    handle: ProcessHandle
    ended: Future[Exit]

    def wait(self) -> Exit:
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
    ended: Future[Exit] = Future()
    fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        handle = processes.spawn(
            argv,
            dict(os.environ) if env is None else env,
            cwd,
            fd,
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
def engine(directory: Path, pid_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the stand-in for the engine in a process of its own; yields when its daemon is up."""
    command = [sys.executable, "-c", ENGINE, str(directory), str(pid_file), DAEMON]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            read_pid(pid_file)
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
