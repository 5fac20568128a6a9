"""The state of the training program for the sidecar: awaited, running, ended, or stopped early.

`launch.c`, the first process of the program's container, shares a directory with the sidecar. Its file `state` holds
the state of the program; its named pipe `orders` takes requests. Only the launcher reads that pipe, so a pipe without a
reader means that it has ended, whatever killed it. A launcher that ended without a final state was killed.

Whether Kubernetes restarts the program follows from its exit code, by the rules of its container or the policy of the
pod. The sidecar never waits for other containers of the pod: one of them may wait for the sidecar.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from katib.model.container_restarts import EXIT_CODES, runs_again

LAUNCHER_DIRECTORY = "/var/run/katib"
"""Mount path of the volume with the launcher, its state and its orders."""

RESTART_SECONDS = 600.0
"""Time limit for the restart of a program whose container has a restart rule: twice the longest pause before a start. A
node whose kubelet is older than the API server does not know such rules."""

_RECORD_BYTES = 64
_KILLED = 137
"""Exit code of a container that was killed as a whole: the kernel does it when memory is short."""


class ProgramPhase(StrEnum):
    """Phase of the program. ENDED is final."""

    AWAITED = "awaited"
    RUNNING = "running"
    ENDED = "ended"


class LauncherState(StrEnum):
    """State of a run, as written by its launcher."""

    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"


class TrainingProgram(Protocol):
    """A program, followed through its restarts. Not thread-safe.

    Attributes:
        completed: Whether it succeeded.
        stopped: Whether it succeeded because it was stopped early.
        doubt: The reason why it may run again; empty if it certainly will not.
    """

    completed: bool
    stopped: bool
    doubt: str

    def look(self) -> ProgramPhase:
        """Return the current phase; costs one read of a small file while the program runs."""

    def runs_again(self) -> bool:
        """Whether a program runs that no look has seen, although the last look was final."""

    def is_gone(self) -> bool:
        """Whether no process of the program's container is running."""

    def stop(self) -> str:
        """Request an early end of the program, once; return why that is not possible, empty if it is."""

    def insist(self) -> None:
        """Enforce an early stop."""

    def release(self) -> None:
        """Notify processes waiting for the collector that it has finished."""


class LaunchedRun(NamedTuple):
    """The state of a run: its number, the last state, and the exit code of a program that ended."""

    number: int
    word: LauncherState
    code: int


class LaunchedProgram(TrainingProgram):
    """A program started by a launcher.

    Args:
        restart_policy: Restart policy of the pod: a failed program is restarted unless it is `Never`.
        own_restart: Restart policy of the program's container, which overrides the pod's.
    """

    def __init__(
        self,
        directory: Path,
        *,
        restart_policy: str = "Never",
        own_restart: Mapping[str, Any] | None = None,
        monotonic: Callable[[], float],
    ) -> None:
        self.completed = self.stopped = False
        self.doubt = ""
        self._directory = directory
        self._restart_policy = restart_policy
        self._own_restart = own_restart or {}
        self._monotonic = monotonic
        self._seen = 0
        self._ended: tuple[int, float] = (0, 0.0)

    def look(self) -> ProgramPhase:
        run = self._run()
        if run is None:
            return ProgramPhase.AWAITED
        self._seen = run.number
        if run.word is LauncherState.RUNNING:
            if not self.is_gone():
                return ProgramPhase.RUNNING
            run = self._run() or run  # its final state may have been written meanwhile
        self.completed = run.word in {LauncherState.COMPLETED, LauncherState.STOPPED}
        self.stopped = run.word is LauncherState.STOPPED
        if run.number != self._ended[0]:
            self._ended = (run.number, self._monotonic())
        code = None if run.word is LauncherState.RUNNING else run.code
        return ProgramPhase.AWAITED if self._is_started_again(code) else ProgramPhase.ENDED

    def runs_again(self) -> bool:
        """Whether a run has started that no look has seen."""
        run = self._run()
        return run is not None and run.number != self._ended[0]

    def is_gone(self) -> bool:
        """Whether the launcher has ended."""
        return not self._order("")

    def stop(self) -> str:
        """Have the launcher stop the program. If it has ended, the next look detects that."""
        self._order(f"stop {self._seen}\n")
        return ""

    def insist(self) -> None:
        """Do nothing: the launcher enforces the stop."""

    def release(self) -> None:
        """End the launcher's wait, unless it belongs to a run that no look has seen."""
        self._order(f"done {self._seen}\n")

    def _run(self) -> LaunchedRun | None:
        with contextlib.suppress(OSError, ValueError):
            with (self._directory / "state").open("rb") as file:
                number, word, code = file.read(_RECORD_BYTES).decode().split()
            return LaunchedRun(int(number), LauncherState(word), int(code))
        return None

    def _order(self, text: str) -> bool:
        try:
            descriptor = os.open(self._directory / "orders", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        with contextlib.suppress(BlockingIOError):  # too many orders are waiting already
            os.write(descriptor, text.encode())
        os.close(descriptor)
        return True

    def _is_started_again(self, code: int | None) -> bool:
        """Whether a program that ended with an exit code will be restarted; None: the code is unknown."""
        if not self._runs_again(_KILLED if code is None else code):
            if code is None and any(map(self._runs_again, EXIT_CODES)):
                self.doubt = "the program was killed, and it is not known whether its container is started again"
            return False
        if not self._own_restart or self._monotonic() - self._ended[1] < RESTART_SECONDS:
            return True
        self.doubt = f"the program did not run again within {RESTART_SECONDS:g} s, as the rules of its container say"
        return False

    def _runs_again(self, code: int) -> bool:
        return runs_again(self._own_restart, self._restart_policy, code)
