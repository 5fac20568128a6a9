"""What is known about a started process, and how it ended."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

_SIGNAL_BASE = 128
"""A shell's and a container's exit code of a process that died by signal n is 128 + n."""

_FROM_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM})
"""Signals that others send: the kernel's OOM killer, an administrator, a machine that shuts down."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended.

    Attributes:
        code: Its exit code, 128 + n when signal n ended it.
        signal: The signal that ended it, 0 when it exited by itself.
        lost: The guard went down with it, so the code is ours (SIGKILL) and not the process's own.
        remains: Something it started is still running; `Processes.kill_tree` ends that.
    """

    code: int
    signal: int = 0
    lost: bool = False
    remains: bool = False

    @classmethod
    def by_signal(cls, number: int, *, lost: bool = False, remains: bool = False) -> Exit:
        """Return the exit of a process that a signal ended."""
        return cls(_SIGNAL_BASE + number, number, lost, remains)

    @classmethod
    def of_status(cls, status: int, *, remains: bool) -> Exit:
        """Return the exit that a wait status stands for."""
        code = os.waitstatus_to_exitcode(status)
        return cls(code, remains=remains) if code >= 0 else cls.by_signal(-code, remains=remains)

    @property
    def from_outside(self) -> bool:
        """Whether another process ended this one, or the one that a shell or a container runtime ran for it."""
        return self.code - _SIGNAL_BASE in _FROM_OUTSIDE

    def __str__(self) -> str:
        if self.lost:
            return "was lost with the guard process"
        return f"was killed by {signal_name(self.signal)}" if self.signal else f"exited with {self.code}"


def signal_name(number: int) -> str:
    """Return `SIGKILL` and the like, the plain number for a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class ProcessHandle:
    """One started process. It stays the name of that process after its end, when the pid may be another's.

    Attributes:
        key: Unique within one `Processes`.
        pid: Process id, also of its session and process group.
        start_time: Clock ticks since boot; with the pid it identifies a process for good. 0 where unknown.
        program: Full path of what was executed.
    """

    key: int
    pid: int = field(compare=False)
    start_time: int = field(compare=False)
    program: str = field(compare=False)
