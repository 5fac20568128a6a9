"""Which files of its disk a pod has written: those in its own folders, and those that its processes write to."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from katib.places.machine.processes.proc import descendants

_BLOCK_BYTES = 512


def sizes_of(folders: Iterable[Path], pids: Iterable[int], since: float) -> dict[Path, int]:
    """Return how many bytes of the disk of the first folder are taken by each file of a pod.

    Args:
        folders: Its own ones: everything in them is its own.
        pids: Its processes. Files that they or their children write count if they were changed meanwhile.
        since: When it began, in seconds since 1970.
    """
    sizes: dict[Path, int] = {}
    found: set[tuple[int, int]] = set()
    device: int | None = None
    for folder in folders:
        for place, _, names in os.walk(folder):
            for path in (Path(place, name) for name in names):
                with suppress(OSError):
                    _add(sizes, found, path, path.lstat())
        device = folder.stat().st_dev if device is None else device
    for pid in pids:
        for process in (pid, *descendants(pid)):
            for path, status in _written(process):
                if status.st_dev == device and status.st_mtime >= since:
                    _add(sizes, found, path, status)
    return sizes


def _add(sizes: dict[Path, int], found: set[tuple[int, int]], path: Path, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode) and (inode := (status.st_dev, status.st_ino)) not in found:
        found.add(inode)
        sizes[path] = status.st_blocks * _BLOCK_BYTES


def _written(pid: int) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files that a process has open for writing."""
    with suppress(OSError):  # it has ended
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError, StopIteration, ValueError):
                info = Path(f"/proc/{pid}/fdinfo/{link.name}").read_text()
                flags = next(line for line in info.splitlines() if line.startswith("flags:"))
                if int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                    yield link.readlink(), link.stat()
