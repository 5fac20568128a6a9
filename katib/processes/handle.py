"""What is known about a started process, and how it ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

from katib.errors import TerminalError

_SIGNAL_BASE = 128
"""A shell's and a container's exit code of a process that died by signal n is 128 + n."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended.

    Attributes:
        code: Its exit code, 128 + n when signal n ended it.
        signal: The signal that ended it, 0 when it exited by itself.
        lost: The guard went down with it, so the code is ours (SIGKILL) and not the process's own.
        remains: Something it started is still running; `Processes.kill_tree` ends that.
        cpu_seconds: User and system time of the process and the children it waited for.
        peak_memory_bytes: Largest resident set among them.
    """

    code: int
    signal: int = 0
    lost: bool = False
    remains: bool = False
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0

    def __str__(self) -> str:
        if self.lost:
            return "was lost with the guard process"
        return f"was killed by {signal_name(self.signal)}" if self.signal else f"exited with {self.code}"


def exit_by_signal(number: int, *, lost: bool = False, remains: bool = False) -> Exit:
    """Return the exit of a process that a signal ended."""
    return Exit(code=_SIGNAL_BASE + number, signal=number, lost=lost, remains=remains)


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
    """

    key: int
    pid: int = field(compare=False)
    start_time: int = field(compare=False)


class SpawnError(TerminalError):
    """A program that cannot be started, and what to do about it. A second try without a change gives the same.

    Attributes:
        cause: What is wrong, with the offending value.
        remedy: What to do, as an imperative.
        origin: `command-not-found`, `command-not-executable`, `command-too-long`, `directory-missing`, `spawn-failed`.
    """

    def __init__(self, cause: str, remedy: str, origin: str) -> None:
        self.cause = cause
        self.remedy = remedy
        self.origin = origin
        super().__init__(f"{cause}; {remedy}")
