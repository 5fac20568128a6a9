"""The training program seen from the sidecar: awaited, running, ended.

The program runs below a shell that wrapped it (`katib/injection/command.py`, or Katib's own wrapping, which writes no
marker but `completed`). It is found by the text in the shell's command line; that it ran is known from its marker as
well, for it may have ended before we looked. A shell that is gone and left no last word was killed.

Which order things are looked at matters: a word read before the processes is a start that was seen, a word read after
them is the last one of a process that is gone.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from enum import StrEnum
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
from metrics_collector.markers import Markers, Word

UNSEEN_SECONDS = 10.0
"""A metrics file without process and without marker for so long is the work of a program that ended before us."""


class Phase(StrEnum):
    """How far the program is. ENDED is final."""

    AWAITED = "awaited"
    RUNNING = "running"
    ENDED = "ended"


class Program:
    """Follows the program of one pod through its restarts. Not thread-safe.

    Args:
        file: The metrics file; its directory holds the markers.
        restart_policy: Of the pod: what failed is started again unless it is `Never`.
        wait_all: Whether the program has ended only when all other containers have.
        monotonic: Reads time.
        proc: Where processes are seen.
    """

    def __init__(
        self,
        file: Path,
        *,
        restart_policy: str = "Never",
        wait_all: bool = True,
        monotonic: Callable[[], float],
        proc: Path = PROC,
    ) -> None:
        self.markers = Markers(file.parent)
        self.completed = False
        self._file = file
        self._texts = _texts(str(file.parent))
        self._restart_policy = restart_policy
        self._wait_all = wait_all
        self._monotonic = monotonic
        self._proc = proc
        self._shells: list[Process] = []
        self._seen: set[int] = set()
        self._alone_since: float | None = None

    def look(self) -> Phase:
        """Look again; costs one read of a small file while the program runs."""
        if any(read_process(shell.pid, self._proc) == shell for shell in self._shells):
            return Phase.RUNNING
        started = {*self._seen, *self.markers.read()}
        processes = all_processes(self._proc)
        self._shells = wrappers(processes, self._texts, self._proc)
        if self._shells:
            self._seen.update(shell.pid for shell in self._shells)
            self._alone_since = None
            return Phase.RUNNING
        if not started and not self._ended_unseen():
            return Phase.AWAITED
        words = self.markers.read()
        last = next((word for pid, word in reversed(words.items()) if pid in started), "")
        self.completed = last == Word.COMPLETED
        if self._is_started_again():
            return Phase.AWAITED
        if self._wait_all and other_containers(processes, self._proc):
            return Phase.RUNNING
        return Phase.ENDED

    @property
    def shells(self) -> list[Process]:
        """The wrapping shells found by the last look, one for each container."""
        return list(self._shells)

    def tree(self) -> list[Process]:
        """Return all processes below the shells, as they are now."""
        processes = all_processes(self._proc)
        return [process for shell in self._shells for process in descendants(processes, shell.pid)]

    def _is_started_again(self) -> bool:
        if self._restart_policy == "Always":
            return True
        return self._restart_policy == "OnFailure" and not self.completed

    def _ended_unseen(self) -> bool:
        if not self._file.exists():
            self._alone_since = None
            return False
        if self._alone_since is None:
            self._alone_since = self._monotonic()
        return self._monotonic() - self._alone_since >= UNSEEN_SECONDS


def _texts(directory: str) -> tuple[bytes, ...]:
    """Return the texts in a command line by which a wrapping shell is known."""
    return tuple({f"echo completed > {text}".encode() for text in (directory, shlex.quote(directory))})
