"""The training program of a pod without our launcher, seen as processes: as Katib's controller starts it.

Katib puts a shell around the program that is known by a text in its command line and leaves `completed` in
`<directory>/<process id>.pid` if the program ended well. The program of a Prometheus endpoint has no such shell: all
that can be seen then is which first processes of containers there are, apart from Kubernetes' own and ours. The program
has ended when all of them have; how it ended cannot be seen, and a container that never ends keeps us until SIGTERM.

A program that ended before we looked first leaves no trace but what it wrote: a container that is gone looks like one
that is still to come.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from metrics_collector.container_processes import (
    PROC,
    Process,
    all_processes,
    descendants,
    other_containers,
    read_process,
    wrappers,
)
from metrics_collector.program import Phase, Program

COMPLETING = "echo completed > "
"""Of the command line of a shell around a program; the directory of its markers follows."""

EARLY_STOPPED = "early-stopped"
"""The word in the marker of a program that is stopped early: its shell then ends well."""

TRACE_SECONDS = 10.0
"""Something to read without process and without marker for so long is the work of a program that ended before us."""

UNSEEN_SECONDS = 600.0
"""Without shell: until a container that has not come was there before us; twice the longest pause before a start."""


class SeenProgram(Program):
    """Follows the program of one pod.

    Args:
        directory: Where a shell leaves its markers; None: no shell is around the program.
        left_a_trace: Returns whether any program has left something to read.
        grace_seconds: Of the pod; a program that is stopped early has as long.
        monotonic: Reads time.
        proc: Where processes are seen.
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
        self._firsts: list[Process] = []
        self._was_seen = False
        self._stopped_at = 0.0
        self._alone_since: float | None = None
        self._began = monotonic()

    def look(self) -> Phase:
        """Look again."""
        self._firsts = [process for process in self._firsts if read_process(process.pid, self._proc) == process]
        if not self._firsts:
            self._firsts = self._found()
        if self._firsts:
            self._was_seen = True
            return Phase.RUNNING
        self.completed = self._directory is None or bool(self._completed())
        return Phase.ENDED if self._was_seen or self._ended_unseen() else Phase.AWAITED

    def runs_again(self) -> bool:
        """Return whether a program runs though there was none any more."""
        return bool(self._found())

    def is_gone(self) -> bool:
        """Return that it is not known: other containers may run."""
        return False

    def stop(self) -> str:
        """Mark the program and ask all its processes to end; the shell is left alone, and ends well after it."""
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
        """End what is left by force once the grace period is over."""
        if self.stopped and self._monotonic() - self._stopped_at >= self._grace_seconds:
            with contextlib.suppress(OSError):
                self._signal(signal.SIGKILL)

    def release(self) -> None:
        """Do nothing: nobody waits."""

    def _found(self) -> list[Process]:
        if self._directory is None:
            return other_containers(self._proc)
        return wrappers(all_processes(self._proc), f"{COMPLETING}{self._directory}".encode(), self._proc)

    def _completed(self) -> list[Path]:
        """Return the markers of programs that ended well."""
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
