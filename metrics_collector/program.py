"""The training program seen from the sidecar: awaited, running, ended, or stopped early: politely, then firmly.

The program runs below a shell that wrapped it (`katib.cluster.injection.command`, or Katib's own wrapping, which writes
no marker but `completed`). It is found by the text in the shell's command line; that it ran is known from its marker as
well, for it may have ended before we looked. A shell that says how its program ended may stay until we are done. A
shell that is gone and left no last word was killed. Whether Kubernetes starts the program again follows from its exit
code, by the rules of its container or the policy of the pod. Other containers of the pod are never waited for: one of
them may wait for us.

Which order things are looked at matters: a word read before the processes is a start that was seen, a word read after
them is the last one of a process that is gone.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from katib.api.container_restarts import EXIT_CODES, runs_again
from metrics_collector.container_processes import (
    PROC,
    Process,
    all_processes,
    descendants,
    read_process,
    wrappers,
)
from metrics_collector.markers import COMPLETING, ENDED_WORDS, CollectedWord, Markers, Word

UNSEEN_SECONDS = 10.0
"""Something to read without process and without marker for so long is the work of a program that ended before us."""

RESTART_SECONDS = 600.0
"""Within so long a program has to run again of which its container says that it will: twice the longest pause before a
start. A node whose kubelet is older than the API server knows nothing of such rules."""

_KILLED = 137
"""How a container ends whose shell left no last word: the kernel kills all its processes when memory is short."""


class Phase(StrEnum):
    """How far the program is. ENDED is final."""

    AWAITED = "awaited"
    RUNNING = "running"
    ENDED = "ended"


class Program:
    """Follows the program of one pod through its restarts. Not thread-safe.

    Args:
        directory: Holds the markers.
        left_a_trace: Returns whether any program has left something to read.
        restart_policy: Of the pod: what failed is started again unless it is `Never`.
        own_restart: What the program's container says of it, in place of the pod.
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
        own_restart: Mapping[str, Any] | None = None,
        wait_all: bool = True,
        monotonic: Callable[[], float],
        proc: Path = PROC,
    ) -> None:
        self.markers = Markers(directory)
        self.completed = False
        self.doubt = ""
        """Why it is not certain that the program will not run again."""
        self._left_a_trace = left_a_trace
        self._texts = _texts(str(directory))
        self._restart_policy = restart_policy
        self._own_restart = own_restart or {}
        self._wait_all = wait_all
        self._monotonic = monotonic
        self._proc = proc
        self._shells: list[Process] = []
        self._seen: set[int] = set()
        self._alone_since: float | None = None
        self._ended: tuple[int | None, float] = (None, 0.0)

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
        last = next((pid for pid in reversed(words) if pid in started), None)
        self.completed = last is not None and words[last] == Word.COMPLETED
        if last != self._ended[0]:
            self._ended = (last, self._monotonic())
        code = None if last is None else self.markers.exit_code(last)
        return Phase.AWAITED if self._is_started_again(code) else Phase.ENDED

    def runs_again(self) -> bool:
        """Return whether a program runs that no look has seen, though the one before it was to be the last."""
        shells = wrappers(all_processes(self._proc), self._texts, self._proc)
        return any(shell.pid not in self._seen for shell in shells)

    @property
    def shells(self) -> list[Process]:
        """The wrapping shells found by the last look whose programs run, one for each container."""
        return list(self._shells)

    def tree(self) -> list[Process]:
        """Return all processes below the shells, as they are now."""
        processes = all_processes(self._proc)
        return [process for shell in self._shells for process in descendants(processes, shell.pid)]

    def release(self, word: CollectedWord) -> None:
        """Notify shells that wait for the collector that it is done."""
        self.markers.release(word)

    def _is_at_work(self, shell: Process) -> bool:
        return self.markers.word(shell.pid) not in ENDED_WORDS and read_process(shell.pid, self._proc) == shell

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

    def _ended_unseen(self) -> bool:
        if not self._left_a_trace():
            self._alone_since = None
            return False
        if self._alone_since is None:
            self._alone_since = self._monotonic()
        return self._monotonic() - self._alone_since >= UNSEEN_SECONDS


class Stop:
    """An early stop under way. The wrapping shells are left alone: they end, and end well, when the program has.

    Args:
        program: What to stop.
        grace_seconds: Between SIGTERM and SIGKILL.
        monotonic: Reads time.
    """

    def __init__(self, program: Program, grace_seconds: float, monotonic: Callable[[], float]) -> None:
        self._program = program
        self._grace_seconds = grace_seconds
        self._monotonic = monotonic
        self._began = monotonic()

    def begin(self) -> str:
        """Mark the program and ask all its processes to end; return why that is not possible, empty when it is."""
        try:
            for shell in self._program.shells:
                self._program.markers.write(shell.pid, Word.EARLY_STOPPED)
            self._signal(signal.SIGTERM)
        except OSError as error:
            for shell in self._program.shells:
                with contextlib.suppress(OSError):
                    self._program.markers.write(shell.pid, Word.RUNNING)
            return error.strerror or type(error).__name__
        self._began = self._monotonic()
        return ""

    def insist(self) -> None:
        """End what is left by force once the grace period is over."""
        if self._monotonic() - self._began >= self._grace_seconds:
            with contextlib.suppress(OSError):
                self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._program.tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)


def _texts(directory: str) -> tuple[bytes, ...]:
    """Return the texts in a command line by which a wrapping shell is known."""
    return tuple({f"{COMPLETING}{text}".encode() for text in (directory, shlex.quote(directory))})
