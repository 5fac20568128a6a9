"""The training program seen from the sidecar: awaited, running, ended.

The program runs below a shell that wrapped it (`katib.cluster.injection.command`, or Katib's own wrapping, which writes
no marker but `completed`). It is found by the text in the shell's command line; that it ran is known from its marker as
well, for it may have ended before we looked. A shell that says how its program ended may stay until we are done. A
shell that is gone and left no last word was killed. Other containers of the pod are never waited for: one of them may
wait for us.

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
    read_process,
    wrappers,
)
from metrics_collector.markers import ENDED_WORDS, CollectedWord, Markers, Word

UNSEEN_SECONDS = 10.0
"""Something to read without process and without marker for so long is the work of a program that ended before us."""


class Phase(StrEnum):
    """How far the program is. ENDED is final."""

    AWAITED = "awaited"
    RUNNING = "running"
    ENDED = "ended"


class Program:
    """Follows the program of one pod through its restarts. Not thread-safe.

    Args:
        directory: Holds the markers.
        left_a_trace: Tells whether a program has left something to read, whoever it was.
        restart_policy: Of the pod: what failed is started again unless it is `Never`.
        wait_all: Where several programs of the pod are wrapped, whether all of them have to end, not just one.
        monotonic: Reads time.
        proc: Where processes are seen.
    """

    def __init__(
        self,
        directory: Path,
        *,
        left_a_trace: Callable[[], bool] = lambda: False,
        restart_policy: str = "Never",
        wait_all: bool = True,
        monotonic: Callable[[], float],
        proc: Path = PROC,
    ) -> None:
        self.markers = Markers(directory)
        self.completed = False
        self._left_a_trace = left_a_trace
        self._texts = _texts(str(directory))
        self._restart_policy = restart_policy
        self._wait_all = wait_all
        self._monotonic = monotonic
        self._proc = proc
        self._shells: list[Process] = []
        self._seen: set[int] = set()
        self._alone_since: float | None = None

    def look(self) -> Phase:
        """Look again; costs one read of a small file while the program runs."""
        if self._shells and all(self._is_at_work(shell) for shell in self._shells):
            return Phase.RUNNING
        started = {*self._seen, *self.markers.read()}
        shells = wrappers(all_processes(self._proc), self._texts, self._proc)
        self._seen.update(shell.pid for shell in shells)
        before, self._shells = self._shells, [shell for shell in shells if self._is_at_work(shell)]
        if self._shells and (self._wait_all or not set(self._shells) < set(before)):
            self._alone_since = None
            return Phase.RUNNING
        started |= self._seen
        if not started and not self._ended_unseen():
            return Phase.AWAITED
        words = self.markers.read()
        last = next((word for pid, word in reversed(words.items()) if pid in started), "")
        self.completed = last == Word.COMPLETED
        if self._is_started_again():
            return Phase.AWAITED
        return Phase.ENDED

    @property
    def shells(self) -> list[Process]:
        """The wrapping shells found by the last look whose programs run, one for each container."""
        return list(self._shells)

    def tree(self) -> list[Process]:
        """Return all processes below the shells, as they are now."""
        processes = all_processes(self._proc)
        return [process for shell in self._shells for process in descendants(processes, shell.pid)]

    def release(self, word: CollectedWord) -> None:
        """Tell shells that wait for the collector that it is done."""
        self.markers.release(word)

    def _is_at_work(self, shell: Process) -> bool:
        return self.markers.word(shell.pid) not in ENDED_WORDS and read_process(shell.pid, self._proc) == shell

    def _is_started_again(self) -> bool:
        if self._restart_policy == "Always":
            return True
        return self._restart_policy == "OnFailure" and not self.completed

    def _ended_unseen(self) -> bool:
        if not self._left_a_trace():
            self._alone_since = None
            return False
        if self._alone_since is None:
            self._alone_since = self._monotonic()
        return self._monotonic() - self._alone_since >= UNSEEN_SECONDS


def _texts(directory: str) -> tuple[bytes, ...]:
    """Return the texts in a command line by which a wrapping shell is known."""
    return tuple({f"echo completed > {text}".encode() for text in (directory, shlex.quote(directory))})
