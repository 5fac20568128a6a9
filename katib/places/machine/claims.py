"""Which engine works on a data directory: the one that holds the lock on a file in it.

The kernel gives the lock to one process and takes it back when that process ends, however it ends, so a crashed owner
never blocks. What is written in the file only shows people who holds it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from katib.errors import TerminalError
from katib.places.machine.processes.proc import read_stat

T = TypeVar("T")

_log = logging.getLogger(__name__)

LOCK_FILE = "engine.lock"

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
"""What file systems answer that know no locks, as some of networks."""

_OURS = " of this process"

_LOOK_SECONDS = 0.2
"""How often it is tried again to hold a directory that another process holds."""

_UNSAID_SECONDS = 3.0
"""Some hold it for a moment only."""

_held: set[int] = set()


class Holder(NamedTuple):
    """The process that holds a data directory, its command, and its start: another process may get its number."""

    pid: int
    command: str
    start_time: int = 0

    def open_process(self) -> int | None:
        """Return a descriptor of the process, to be closed; None where it has ended, or is not known here."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return None
        stat = read_stat(self.pid)
        if stat is not None and stat.start_time == self.start_time:
            return descriptor
        os.close(descriptor)
        return None


class HeldError(TerminalError):
    """Another engine holds the data directory; `holder` is None in the moment before that is written down."""

    def __init__(self, message: str, holder: Holder | None = None) -> None:
        super().__init__(message)
        self.holder = holder


def in_turn(attempt: Callable[[], T], say: Callable[[str], object], pause: Callable[[float], object] = time.sleep) -> T:
    """Return what an attempt returns that holds a data directory; try again while another program holds it.

    Args:
        attempt: Enters an engine, as a rule.
        say: Gets which program is waited for, once.
        pause: Waits some seconds.

    Raises:
        HeldError: This process holds it, or one that waits for this process.
    """
    said, began = False, time.monotonic()
    while True:
        try:
            return attempt()
        except HeldError as error:
            holder = error.holder
            if holder is not None and _waits_for_us(holder.pid):
                raise
        if holder is not None and not said and time.monotonic() - began > _UNSAID_SECONDS:
            say(f"waiting for {holder.command} (process {holder.pid})")
            said = True
        pause(_LOOK_SECONDS)


def _waits_for_us(pid: int) -> bool:
    """Return whether a process is this one or one that it descends from: a trial may search as well."""
    ours = os.getpid()
    while ours != pid and (stat := read_stat(ours)) is not None and stat.parent > 0:
        ours = stat.parent
    return ours == pid


class Claim(NamedTuple):
    """A data directory that this process holds, by the open file of its lock."""

    directory: Path
    descriptor: int

    def loss(self) -> str:
        """Return why the directory is no longer at its path, with a remedy; empty while it is."""
        try:
            held = os.fstat(self.descriptor)
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if os.path.samestat(held, (self.directory / LOCK_FILE).stat()):
                    return ""
            place = Path(f"/proc/self/fd/{self.descriptor}").readlink().parent
        except OSError:  # of a file system that does not answer now
            return ""
        if held.st_nlink == 0:
            return f"{self.directory}: removed while it was in use; run again to begin anew"
        remedy = f"move it back or give --data-dir {shlex.quote(str(place))}, and run again to continue"
        return f"{self.directory}: moved to {place} while it was in use; {remedy}"


class HeldDirectory:
    """A claimed directory that is watched: once it is no longer at its path, nothing in it is touched by name.

    The files that are open are those of the directory, wherever it is. Thread-safe.

    Attributes:
        lost: Why it is no longer at its path, with a remedy; empty as far as is known.

    Args:
        claim: The claim.
        on_loss: Called once, on the thread that notices the loss.
    """

    def __init__(self, claim: Claim, on_loss: Callable[[], None]) -> None:
        self.lost = ""
        self._claim = claim
        self._on_loss = on_loss

    def is_lost(self) -> bool:
        """Return whether the directory is no longer at its path."""
        if not self.lost and (loss := self._claim.loss()):
            self.lost = loss
            self._on_loss()
        return bool(self.lost)

    def check(self) -> None:
        """Check that the directory is at its path.

        Raises:
            TerminalError: It was moved or removed.
        """
        if self.is_lost():
            raise TerminalError(self.lost)


@contextmanager
def claimed(directory: Path) -> Iterator[Claim]:
    """Hold a data directory.

    Raises:
        HeldError: Another engine holds it, of this process or another.
        TerminalError: The file of the lock cannot be opened.
    """
    path = directory / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise TerminalError(f"{path}: cannot be opened: {error.strerror}; use another --data-dir") from error
    close_in_children(descriptor)
    try:
        _lock(descriptor, directory)
        _write_holder(descriptor)
        yield Claim(directory, descriptor)
    finally:
        close_now(descriptor)


def holder_of(directory: Path) -> Holder | None:
    """Return which process holds a data directory; None when none does, or in the moment before it is written down."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def close_in_children(descriptor: int) -> None:
    """Keep a lock from children that this process forks: they would hold it beyond the end of the engine."""
    _held.add(descriptor)


def close_now(descriptor: int) -> None:
    """Close such a descriptor, and with it give up its lock."""
    if descriptor in _held:  # no more in a forked child
        _held.remove(descriptor)
        os.close(descriptor)


def _lock(descriptor: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        found, holder = _read_holder(descriptor), ""  # which is written down a moment later
        if found is not None:
            holder = _OURS if found.pid == os.getpid() else f" (process {found.pid}: {found.command})"
        remedy = "wait for its katib.tune, or close() the experiment that opened it" if holder == _OURS else "end it"
        cause = f"another engine{holder} is at work in {directory}"
        raise HeldError(f"{cause}; {remedy}, or choose another directory", found) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        _log.warning("Data directory cannot be locked", extra={"directory": str(directory), "cause": error.strerror})


def _write_holder(descriptor: int) -> None:
    """Write down who holds the lock; a full disk does not prevent the lock."""
    subcommand = [word for word in sys.argv[1:2] if not word.startswith("-")]  # options may hold a token
    command = " ".join([Path(sys.argv[0]).name, *subcommand])
    if notebook := os.environ.get("JPY_SESSION_NAME"):  # as Jupyter names it to its kernel, and all it starts
        command = f"the kernel of {Path(notebook).name}" if "ipykernel" in command else command
    stat = read_stat(os.getpid())
    text = json.dumps({"pid": os.getpid(), "command": command, "startTime": stat.start_time if stat else 0})
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)


def _read_holder(descriptor: int) -> Holder | None:
    try:
        holder = json.loads(os.pread(descriptor, 65_536, 0))
        return Holder(int(holder["pid"]), str(holder["command"]), int(holder.get("startTime") or 0))
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _forget_in_child() -> None:
    """Give up a forked child's share of the locks."""
    while _held:
        with contextlib.suppress(OSError):
            os.close(_held.pop())


os.register_at_fork(after_in_child=_forget_in_child)
