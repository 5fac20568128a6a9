"""Room on a disk."""

from __future__ import annotations

import os
from pathlib import Path


def has_room(path: Path, size_bytes: int = 1) -> bool:
    """Return whether the disk of an existing path has room for so much; True where that cannot be told."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return True
    return disk.f_bavail * disk.f_frsize >= size_bytes
