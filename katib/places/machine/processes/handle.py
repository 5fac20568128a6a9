"""Handle and exit of a process, and errors of a failed start."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from katib.errors import KatibError, ShortageError, TerminalError, UnavailableError, shortage_by

_SIGNAL_BASE = 128
"""A shell or container exits with 128 + n if its process died by signal n."""

_FROM_OUTSIDE = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM})
"""Signals of others: the kernel's OOM killer, an administrator, a machine that shuts down."""


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """Exit of a process.

    Attributes:
        code: Its exit code, 128 + n if signal n ended it.
        signal: The signal that ended it, 0 if it exited by itself.
        lost: Whether it ended with the guard; then the code is assumed (SIGKILL) and not the process's own.
        remains: Whether processes started by it still run; `Processes.kill_tree` ends them.
    """

    code: int
    signal: int = 0
    lost: bool = False
    remains: bool = False

    @classmethod
    def by_signal(cls, number: int, *, lost: bool = False, remains: bool = False) -> ProcessExit:
        return cls(_SIGNAL_BASE + number, number, lost, remains)

    @classmethod
    def of_status(cls, status: int, *, remains: bool) -> ProcessExit:
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
    """Return the name, such as `SIGKILL`, or the number of a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class ProcessHandle:
    """One started process. The handle stays valid after its end, when the pid may be reused.

    Attributes:
        key: Unique within one `Processes`.
        pid: Process id, also of its session and process group.
        start_time: Clock ticks since boot; identifies a process together with the pid. 0 if unknown.
        program: Full path of the executed file.
    """

    key: int
    pid: int = field(compare=False)
    start_time: int = field(compare=False)
    program: str = field(compare=False)


_EXPLANATIONS = {
    "volume": ('directory "{path}" cannot be made: {text}', "make it or change the hostPath", "volume-missing"),
    "cwd": ('working directory "{cwd}" cannot be entered: {text}', "change workingDir", "directory-missing"),
    ("cwd", errno.ENOENT): (
        'working directory "{cwd}" does not exist on this machine',
        "create it or change workingDir",
        "directory-missing",
    ),
    "interpreter": (
        'the interpreter in the first line of "{path}" does not exist on this machine',
        "install it, change the #! line, or remove line ends of Windows from the file",
        "command-not-found",
    ),
    "exec": ('cannot start command "{command}": {text}', "look at the file and its rights", "spawn-failed"),
    ("exec", errno.ENOENT): (
        'command "{command}" not found on this machine{where}',
        "install it or give its path, or run the image with --containers auto where podman or docker is installed",
        "command-not-found",
    ),
    ("exec", errno.EACCES): (
        'command "{command}" may not be executed',
        "make the file executable (chmod +x)",
        "command-not-executable",
    ),
    ("exec", errno.E2BIG): (
        'arguments and environment of command "{command}" are too long for this machine ({size} characters)',
        "pass large values in a file",
        "command-too-long",
    ),
    ("exec", errno.ENOEXEC): (
        'command "{command}" is not a program of this machine',
        "add a #! line or call its interpreter",
        "spawn-failed",
    ),
    ("exec", errno.EINVAL): (
        "command {command!r} or its environment holds a character that no program can take",
        "remove the NUL characters",
        "spawn-failed",
    ),
}
"""Cause, remedy and origin by the failed step, and by the errno if relevant."""


class SpawnError(TerminalError):
    """A program that cannot be started, with a remedy. A retry without a change fails the same way.

    Attributes:
        cause: The error, with the offending value.
        remedy: The remedy, as an imperative.
        origin: `command-not-found`, `command-not-executable`, `command-too-long`, `directory-missing`,
            `volume-missing`, `spawn-failed`.
    """

    def __init__(self, cause: str, remedy: str, origin: str) -> None:
        self.cause = cause
        self.remedy = remedy
        self.origin = origin
        super().__init__(f"{cause}; {remedy}")


_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Command:
    """A program to start, as the guard gets it.

    Attributes:
        argv: The program, looked up in the PATH of `env`, and its arguments.
        env: Its whole environment.
        makes: Directories that are made first if they are missing.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    directory: Path = _ROOT
    makes: Sequence[Path] = ()


def spawn_error(step: str, number: int, path: str, started: Command) -> KatibError:
    """Return the error for a failed start.

    It is an UnavailableError if a retry may help, a SpawnError otherwise. No file is accessed: the file system may be
    the cause.

    Args:
        step: The failed step: `fork`, `setup`, `volume`, `cwd`, `exec`, `interpreter` (the program exists, but not the
            one in its first line).
        number: The errno.
        path: Path of that step.
        started: The program.
    """
    argv, env, cwd = started.argv, started.env, str(started.directory)
    command, text = (argv[0] if argv else ""), os.strerror(number)
    if number == errno.ECANCELED:
        return UnavailableError(f'"{command}" was stopped before it ran')
    if number == errno.ETIMEDOUT:
        cause = f'"{path}" is on a file system that does not answer' if path else "the machine does not answer"
        return UnavailableError(f'cannot start "{command}" now: {cause}; repair it, or move what the trial needs')
    if (shortage := shortage_by(number)) is not None:
        return ShortageError(shortage.lack, f'cannot start "{command}" now: {shortage}')
    other = ('cannot start "{command}": {text}', "look at the limits of this account", "spawn-failed")
    cause, remedy, origin = _EXPLANATIONS.get((step, number)) or _EXPLANATIONS.get(step, other)
    size = sum(map(len, argv)) + sum(len(name) + len(value) for name, value in env.items())
    cause = cause.format(command=command, text=text, path=path, cwd=cwd, size=size, where=_where(command, env, cwd))
    return SpawnError(cause, remedy, origin)


def _where(command: str, env: Mapping[str, str], cwd: str) -> str:
    """Return the search path of a command, as a part of a sentence."""
    if "/" not in command:
        first, *others = env.get("PATH", os.defpath).split(os.pathsep)
        return f" (PATH {'begins with' if others else 'is'} {first})"
    return "" if command.startswith("/") else f' (looked at "{PurePath(cwd, command)}")'
