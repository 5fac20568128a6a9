"""Information about processes from the kernel: /proc and two process attributes of Linux.

Elsewhere (macOS) there is no /proc: every query returns "unknown", and callers fall back to process groups. Standard
library only, because the guard runs without site-packages.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator

ENGINE_ID = "KATIB_ENGINE_ID"
"""Environment variable of all processes of one engine."""

PROCESS_ID = "KATIB_PROCESS_ID"
"""Environment variable of a started process and all its forks."""

_SHARED_SERVICES = frozenset({b"aardvark-dns"})

IS_LINUX = sys.platform == "linux"

_PART_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None) if IS_LINUX else None


class ProcessStat:
    """The part of /proc/PID/stat that identifies a process. `start_time` is in clock ticks since boot."""

    __slots__ = ("group", "parent", "session", "start_time", "state")

    def __init__(self, state: str, parent: int, group: int, session: int, start_time: int) -> None:
        self.state = state
        self.parent = parent
        self.group = group
        self.session = session
        self.start_time = start_time


def _read(path: str) -> bytes:
    """Return a file of /proc. Not by `open`, whose buffers and system calls cost more than the content."""
    descriptor, found = os.open(path, os.O_RDONLY | os.O_CLOEXEC), b""
    try:
        while part := os.read(descriptor, _PART_BYTES):
            found += part
    finally:
        os.close(descriptor)
    return found


def read_stat(pid: int) -> ProcessStat | None:
    """Return the identity of a process, None if it is gone."""
    try:
        # The command name is in parentheses and may itself contain blanks and parentheses.
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None
    return ProcessStat(fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def is_running(pid: int) -> bool:
    """Return whether a process exists and has not ended; False if unknown."""
    stat = read_stat(pid)
    return stat is not None and stat.state not in {"Z", "X"}


def environment_value(pid: int, name: str) -> str | None:
    """Return a variable of a process's initial environment; None if absent, hidden or not on Linux."""
    try:
        environment = _read(f"/proc/{pid}/environ")
    except OSError:
        return None
    start = f"{name}=".encode()
    for entry in environment.split(b"\0"):
        if entry.startswith(start):
            return os.fsdecode(entry[len(start) :])
    return None


def all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - pathlib costs 5 ms
    except OSError:
        return []


def children(pid: int) -> list[int]:
    """Return the direct children of a process, those of all its threads."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - as above
    except OSError:
        return found
    for thread in threads:
        try:
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{thread}"):  # noqa: PTH110 - as above
                return _children_by_scan(pid)  # a kernel built without the children file
        except OSError:
            continue
    return found


def _children_by_scan(pid: int) -> list[int]:
    stats = ((other, read_stat(other)) for other in all_pids())
    return [other for other, stat in stats if stat is not None and stat.parent == pid]


def descendants(pid: int) -> list[int]:
    """Return children, their children and so on, parents before children, zombies included."""
    found = children(pid)
    for child in found:  # the list grows during the iteration
        found += children(child)
    return found


def pids_with(name: str, value: str) -> Iterator[int]:
    """Yield the processes started with this variable in their environment, except this one and shared services."""
    for pid in all_pids():
        if pid != os.getpid() and environment_value(pid, name) == value and not is_shared_service(pid):
            yield pid


def is_shared_service(pid: int) -> bool:
    """Return whether a process also serves others, although one of this engine's was the first to need it.

    The first container with a network starts the name server of all containers of the account, which looks like a
    daemon left behind by this container.
    """
    try:
        return _read(f"/proc/{pid}/comm").strip() in _SHARED_SERVICES
    except OSError:
        return False


def kill(pid: int, sig: int = signal.SIGKILL) -> None:
    """Send a signal to one process, if it exists and belongs to this account."""
    try:
        os.kill(pid, sig)
    except (ProcessLookupError, PermissionError):
        return


def kill_group(group: int, sig: int = signal.SIGKILL) -> bool:
    """Send a signal to a process group; False if it has no members. Signal 0 only checks."""
    try:
        os.killpg(group, sig)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS raises it for a group of zombies; Linux for a group that changed its user
        return not IS_LINUX or sig == 0
    return True


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent dies; False if not supported."""
    return _libc is not None and _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def die_with_parent() -> None:
    """Request SIGKILL when the thread that forked this process ends."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
