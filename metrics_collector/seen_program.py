"""The training program of a pod without a launcher, observed as processes: started by Katib's controller.

Katib wraps the program in a shell that is identified by a text in its command line and that writes `completed` to
`<directory>/<process id>.pid` if the program succeeded. A program with a Prometheus endpoint has no such shell: only
the first processes of containers are visible then, apart from Kubernetes' own and ours. The program has ended when all
of them have; its outcome is unknown, and a container that never ends keeps the sidecar running until SIGTERM.

A program that ended before the first look leaves only its output: an ended container looks like one that has not
started.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from metrics_collector.program import ProgramPhase, TrainingProgram

PROC = Path("/proc")

_KUBERNETES_OWN = 1


class ContainerProcess(NamedTuple):
    """A process. Its number may be reused; number and start time together are its identity."""

    pid: int
    parent: int
    started: int


def read_process(pid: int, proc: Path = PROC) -> ContainerProcess | None:
    try:
        # The command's name is in parentheses and may itself contain blanks and parentheses.
        fields = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {b"Z", b"X"} else ContainerProcess(pid, int(fields[1]), int(fields[19]))


def all_processes(proc: Path = PROC) -> dict[int, ContainerProcess]:
    """Return all running processes by number, except this one."""
    try:
        pids = [int(name) for name in os.listdir(proc) if name.isdigit()]  # noqa: PTH208 - a third of the cost
    except OSError:
        return {}
    found = (read_process(pid, proc) for pid in pids if pid != os.getpid())
    return {process.pid: process for process in found if process is not None}


def command_line(pid: int, proc: Path = PROC) -> bytes:
    """Return the arguments of a process, each terminated by a zero byte; empty if it has ended or is the kernel's."""
    try:
        return (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def wrappers(processes: Mapping[int, ContainerProcess], text: bytes, proc: Path = PROC) -> list[ContainerProcess]:
    """Return the processes whose command line contains a text, without their children that also match."""
    found = {pid for pid in processes if text in command_line(pid, proc)}
    return [processes[pid] for pid in sorted(found) if processes[pid].parent not in found]


def descendants(processes: Mapping[int, ContainerProcess], ancestor: int) -> list[ContainerProcess]:
    """Return all descendants, parents before children."""
    children: dict[int, list[ContainerProcess]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process)
    found = list(children.get(ancestor, ()))
    for process in found:  # the list grows during the loop
        found += children.get(process.pid, ())
    return found


def other_containers(proc: Path = PROC) -> list[ContainerProcess]:
    """Return the first process of each running container, except Kubernetes' own and ours."""
    ours: set[int] = set()
    process = read_process(os.getpid(), proc)
    while process is not None and process.pid not in ours:
        ours.add(process.pid)
        process = read_process(process.parent, proc)
    firsts = [process for process in all_processes(proc).values() if process.parent == 0]
    return [process for process in firsts if process.pid != _KUBERNETES_OWN and process.pid not in ours]


COMPLETING = "echo completed > "
"""Part of the command line of a shell around a program; the directory of its markers follows."""

EARLY_STOPPED = "early-stopped"
"""The word in the marker of a program that is stopped early: its shell then succeeds."""

TRACE_SECONDS = 10.0
"""Output without process and marker for this long is from a program that ended before the first look."""

UNSEEN_SECONDS = 600.0
"""Without shell: time after which a missing container ended before us; twice the longest pause before a start."""


class SeenProgram(TrainingProgram):
    """Observes the program of one pod.

    Args:
        directory: Directory of the shell's markers; None: the program has no shell around it.
        left_a_trace: Returns whether any program has left output.
        grace_seconds: Grace period of the pod, and of a program that is stopped early.
        proc: Root of the process file system.
    """

    doubt = ""

    def __init__(
        self,
        directory: Path | None,
        *,
        left_a_trace: Callable[[], bool] = lambda: False,
        grace_seconds: float = 0.0,
        monotonic: Callable[[], float],
        proc: Path = PROC,
    ) -> None:
        self.completed = self.stopped = False
        self._directory = directory
        self._left_a_trace = left_a_trace
        self._grace_seconds = grace_seconds
        self._monotonic = monotonic
        self._proc = proc
        self._firsts: list[ContainerProcess] = []
        self._was_seen = False
        self._stopped_at = 0.0
        self._alone_since: float | None = None
        self._began = monotonic()

    def look(self) -> ProgramPhase:
        self._firsts = [process for process in self._firsts if read_process(process.pid, self._proc) == process]
        if not self._firsts:
            self._firsts = self._found()
        if self._firsts:
            self._was_seen = True
            return ProgramPhase.RUNNING
        self.completed = self._directory is None or bool(self._completed())
        return ProgramPhase.ENDED if self._was_seen or self._ended_unseen() else ProgramPhase.AWAITED

    def runs_again(self) -> bool:
        """Whether a program runs although there was none any more."""
        return bool(self._found())

    def is_gone(self) -> bool:
        """Return False: unknown, since other containers may run."""
        return False

    def stop(self) -> str:
        """Mark the program and signal all its processes; the shell is left alone, and succeeds after it."""
        if self._directory is None:
            return "its container has no command; write it out"
        try:
            for shell in self._firsts:
                (self._directory / f"{shell.pid}.pid").write_text(f"{EARLY_STOPPED}\n")
            self._signal(signal.SIGTERM)
        except OSError as error:
            return f"{error.strerror or type(error).__name__}; give the pod a runAsUser"
        self.stopped = True
        self._stopped_at = self._monotonic()
        return ""

    def insist(self) -> None:
        """Kill the remaining processes after the grace period."""
        if self.stopped and self._monotonic() - self._stopped_at >= self._grace_seconds:
            with contextlib.suppress(OSError):
                self._signal(signal.SIGKILL)

    def release(self) -> None:
        """Do nothing: no process waits."""

    def _found(self) -> list[ContainerProcess]:
        if self._directory is None:
            return other_containers(self._proc)
        return wrappers(all_processes(self._proc), f"{COMPLETING}{self._directory}".encode(), self._proc)

    def _completed(self) -> list[Path]:
        """Return the markers of programs that succeeded."""
        with contextlib.suppress(OSError):
            markers = list((self._directory or self._proc).glob("*.pid"))
            return [path for path in markers if path.is_file() and path.read_bytes().strip() == b"completed"]
        return []

    def _ended_unseen(self) -> bool:
        if self._directory is None:
            return self._monotonic() - self._began >= UNSEEN_SECONDS
        if self.completed:
            return True
        if not self._left_a_trace():
            self._alone_since = None
            return False
        if self._alone_since is None:
            self._alone_since = self._monotonic()
        return self._monotonic() - self._alone_since >= TRACE_SECONDS

    def _signal(self, number: signal.Signals) -> None:
        processes = all_processes(self._proc)
        for process in (one for shell in self._firsts for one in descendants(processes, shell.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
