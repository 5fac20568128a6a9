"""Turns the errno of a failed start into an error that says what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from katib.errors import KatibError, UnavailableError
from katib.processes.handle import SpawnError

_SCARCE = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})


def spawn_error(stage: str, number: int, argv: list[str], env: Mapping[str, str], cwd: str) -> KatibError:
    """Return the error for a start that failed at a stage (`fork`, `setup`, `cwd`, `exec`) with an errno.

    It is an UnavailableError when the machine was short of something, a SpawnError otherwise.
    """
    text = os.strerror(number)
    if number in _SCARCE:
        return UnavailableError(f"cannot start {argv[0]!r} now: {text}; free memory or raise the limit of processes")
    if stage == "cwd":
        return _cwd_error(number, text, cwd)
    if stage == "exec":
        return _exec_error(number, text, argv, env, cwd)
    return SpawnError(f'cannot start "{argv[0]}": {text}', "look at the limits of this account", "spawn-failed")


def _cwd_error(number: int, text: str, cwd: str) -> SpawnError:
    if number == errno.ENOENT:
        cause, remedy = f'working directory "{cwd}" does not exist on this machine', "create it or change workingDir"
    else:
        cause, remedy = f'working directory "{cwd}" cannot be entered: {text}', "change workingDir"
    return SpawnError(cause, remedy, "directory-missing")


def _exec_error(number: int, text: str, argv: list[str], env: Mapping[str, str], cwd: str) -> SpawnError:
    command = argv[0] if argv else ""
    if number in _MISSING:
        return _missing_command(command, env, cwd)
    if number == errno.EACCES:
        return SpawnError(
            f'command "{command}" may not be executed', "make the file executable (chmod +x)", "command-not-executable"
        )
    if number == errno.E2BIG:
        size = sum(map(len, argv)) + sum(len(name) + len(value) for name, value in env.items())
        return SpawnError(
            f'arguments and environment of command "{command}" are too long for this machine ({size} characters)',
            "pass large values in a file",
            "command-too-long",
        )
    if number == errno.ENOEXEC:
        return SpawnError(
            f'command "{command}" is no program of this machine',
            "add a #! line or call its interpreter",
            "spawn-failed",
        )
    if number == errno.EINVAL:
        return SpawnError(
            f"command {command!r} or its environment holds a character that no program can take",
            "remove the NUL characters",
            "spawn-failed",
        )
    return SpawnError(f'cannot start command "{command}": {text}', "look at the file and its rights", "spawn-failed")


def _missing_command(command: str, env: Mapping[str, str], cwd: str) -> SpawnError:
    if "/" in command:
        path = Path(cwd, command)
        if path.is_file():
            cause = f'the interpreter in the first line of "{command}" does not exist on this machine'
            return SpawnError(cause, "install it or change the #! line", "command-not-found")
        where = f' (looked at "{path}")' if not command.startswith("/") else ""
        cause = f'command "{command}" not found on this machine{where}'
    else:
        cause = f'command "{command}" not found on this machine (PATH is {env.get("PATH", os.defpath)})'
    remedy = "install it or give its path; a trial runs on the files of this machine, not in its image"
    return SpawnError(cause, remedy, "command-not-found")
