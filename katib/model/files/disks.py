"""Free space on a disk, and a reserve for a full one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_RESERVE_BYTES = 1 << 20
"""More than the records of a trial's end need."""


def has_room(path: Path, size_bytes: int = 1) -> bool:
    """Return whether the disk of an existing path has enough free space; True if that is unknown."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return True
    return disk.f_bavail * disk.f_frsize >= size_bytes


def keep_reserve(path: Path) -> None:
    """Create a file that reserves space, if there is plenty; removing it frees the space."""
    if not path.exists() and has_room(path.parent, 4 * _RESERVE_BYTES):
        with suppress(OSError), path.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, _RESERVE_BYTES)
