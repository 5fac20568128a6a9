"""The training program seen from the sidecar: awaited, running, ended, or stopped early: politely, then firmly.

`launch.c`, the first process of the program's container, shares a directory with us. Its file `state` says how far the
program is; its named pipe `orders` takes what we want. Nobody but the launcher reads that pipe, so it is gone if the
pipe has no reader, whatever has killed it. A launcher that is gone and left no last word was killed.

Whether Kubernetes starts the program again follows from its exit code, by the rules of its container or the policy of
the pod. Other containers of the pod are never waited for: one of them may wait for us.
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
"""Where a pod has the volume with the launcher, its state and its orders."""

RESTART_SECONDS = 600.0
"""Within so long a program has to run again of which its container says that it will: twice the longest pause before a
start. A node whose kubelet is older than the API server knows nothing of such rules."""

_RECORD_BYTES = 64
_KILLED = 137
"""How a container ends that was killed as a whole: the kernel does it when memory is short."""


class Phase(StrEnum):
    """How far the program is. ENDED is final."""

    AWAITED = "awaited"
    RUNNING = "running"
    ENDED = "ended"


class Word(StrEnum):
    """How far a run is, by its launcher."""

    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"


class Program(Protocol):
    """A program that is followed through its restarts. Not thread-safe.

    Attributes:
        completed: Whether it ended well.
        stopped: Whether it ended well because it was stopped early.
        doubt: Why it is not certain that it will not run again; empty: nothing is in doubt.
    """

    completed: bool
    stopped: bool
    doubt: str

    def look(self) -> Phase:
        """Look again; costs one read of a small file while the program runs."""

    def runs_again(self) -> bool:
        """Return whether a program runs that no look has seen, though the one before it was to be the last."""

    def is_gone(self) -> bool:
        """Return whether nothing of the program's container runs any more."""

    def stop(self) -> str:
        """Ask the program to end early, once; return why that is not possible, empty when it is."""

    def insist(self) -> None:
        """Go on with an early stop."""

    def release(self) -> None:
        """Notify whoever waits for the collector that it is done."""


class Run(NamedTuple):
    """The state of a run: its number, the last word, and the exit code of a program that ended."""

    number: int
    word: Word
    code: int


class LaunchedProgram(Program):
    """A program below a launcher.

    Args:
        directory: Shared with the launcher.
        restart_policy: Of the pod: what failed is started again unless it is `Never`.
        own_restart: What the program's container says of it, in place of the pod.
        monotonic: Reads time.
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

    def look(self) -> Phase:
        """Look again."""
        run = self._run()
        if run is None:
            return Phase.AWAITED
        self._seen = run.number
        if run.word is Word.RUNNING:
            if not self.is_gone():
                return Phase.RUNNING
            run = self._run() or run  # its last word may have come meanwhile
        self.completed = run.word in {Word.COMPLETED, Word.STOPPED}
        self.stopped = run.word is Word.STOPPED
        if run.number != self._ended[0]:
            self._ended = (run.number, self._monotonic())
        code = None if run.word is Word.RUNNING else run.code
        return Phase.AWAITED if self._is_started_again(code) else Phase.ENDED

    def runs_again(self) -> bool:
        """Return whether a run has begun that no look has seen."""
        run = self._run()
        return run is not None and run.number != self._ended[0]

    def is_gone(self) -> bool:
        """Return whether the launcher has ended."""
        return not self._order("")

    def stop(self) -> str:
        """Have the launcher stop the program. Of one that is gone the next look tells."""
        self._order(f"stop {self._seen}\n")
        return ""

    def insist(self) -> None:
        """Do nothing: the launcher insists."""

    def release(self) -> None:
        """End the launcher's wait, unless it belongs to a run that no look has seen."""
        self._order(f"done {self._seen}\n")

    def _run(self) -> Run | None:
        with contextlib.suppress(OSError, ValueError):
            with (self._directory / "state").open("rb") as file:
                number, word, code = file.read(_RECORD_BYTES).decode().split()
            return Run(int(number), Word(word), int(code))
        return None

    def _order(self, text: str) -> bool:
        """Write to the launcher; return whether there is one."""
        try:
            descriptor = os.open(self._directory / "orders", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        with contextlib.suppress(BlockingIOError):  # so many orders wait already
            os.write(descriptor, text.encode())
        os.close(descriptor)
        return True

    def _is_started_again(self, code: int | None) -> bool:
        """Return whether a program that ended with an exit code will run again; None: the code is not known."""
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
