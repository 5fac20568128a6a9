"""Room on a disk, and some that is kept for when there is none left."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_RESERVE_BYTES = 1 << 20
"""More than what is written about the end of a trial."""


def has_room(path: Path, size_bytes: int = 1) -> bool:
    """Return whether the disk of an existing path has room for so much; True where that cannot be told."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return True
    return disk.f_bavail * disk.f_frsize >= size_bytes


def keep_reserve(path: Path) -> None:
    """Have a file that takes room, where there is plenty; who needs the room removes it."""
    if not path.exists() and has_room(path.parent, 4 * _RESERVE_BYTES):
        with suppress(OSError), path.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, _RESERVE_BYTES)
