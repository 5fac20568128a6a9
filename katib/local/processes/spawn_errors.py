"""Turns the errno of a failed start into an error that says what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from katib.errors import KatibError, TerminalError, UnavailableError

_SCARCE = {
    errno.EAGAIN: "raise the limit of processes",
    errno.ENOMEM: "free memory",
    errno.EMFILE: "raise the limit of open files",
    errno.ENFILE: "raise the limit of open files",
}

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
"""Cause, remedy and origin by the step that failed, and where it matters the errno."""


class SpawnError(TerminalError):
    """A program that cannot be started, and what to do about it. A second try without a change gives the same.

    Attributes:
        cause: What is wrong, with the offending value.
        remedy: What to do, as an imperative.
        origin: `command-not-found`, `command-not-executable`, `command-too-long`, `directory-missing`,
            `volume-missing`, `spawn-failed`.
    """

    def __init__(self, cause: str, remedy: str, origin: str) -> None:
        self.cause = cause
        self.remedy = remedy
        self.origin = origin
        super().__init__(f"{cause}; {remedy}")


def spawn_error(
    step: str, number: int, path: str, *, argv: Sequence[str], env: Mapping[str, str], cwd: str
) -> KatibError:
    """Return the error for a start that failed.

    It is an UnavailableError when another try may help, a SpawnError otherwise. No file is looked at: the file system
    may be what is wrong.

    Args:
        step: How far it came: `fork`, `setup`, `volume`, `cwd`, `exec`, `interpreter` (the program is there, but not
            the one in its first line).
        number: The errno.
        path: What that step was about.
        argv: Program and arguments.
        env: The environment.
        cwd: The working directory.
    """
    command, text = (argv[0] if argv else ""), os.strerror(number)
    if number == errno.ECANCELED:
        return UnavailableError(f'"{command}" was stopped before it ran')
    if number == errno.ETIMEDOUT:
        cause = f'"{path}" is on a file system that does not answer' if path else "the machine does not answer"
        return UnavailableError(f'cannot start "{command}" now: {cause}; repair it, or move what the trial needs')
    if number in _SCARCE:
        return UnavailableError(f'cannot start "{command}" now: {text}; {_SCARCE[number]}')
    other = ('cannot start "{command}": {text}', "look at the limits of this account", "spawn-failed")
    cause, remedy, origin = _EXPLANATIONS.get((step, number)) or _EXPLANATIONS.get(step, other)
    size = sum(map(len, argv)) + sum(len(name) + len(value) for name, value in env.items())
    cause = cause.format(command=command, text=text, path=path, cwd=cwd, size=size, where=_where(command, env, cwd))
    return SpawnError(cause, remedy, origin)


def _where(command: str, env: Mapping[str, str], cwd: str) -> str:
    """Return where a command was looked for, as a part of a sentence."""
    if "/" not in command:
        return f" (PATH is {env.get('PATH', os.defpath)})"
    return "" if command.startswith("/") else f' (looked at "{PurePath(cwd, command)}")'
