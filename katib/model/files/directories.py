"""Directories: free space of their disks, folders near a missing file, and directories with secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from katib.model.files.whole_files import write_whole

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


# Files of a user's program: suffixes of shell scripts, and folders that may contain a missing file.

SHELL_SUFFIXES = frozenset({".sh", ".bash", ".batch", ".job", ".sbatch", ".slurm"})

_MOST_FOLDERS = 50


def folders_near(directory: Path) -> Iterator[Path]:
    """Yield the parent of a directory and its visible subfolders, by name."""
    yield directory / ".."
    try:
        entries = sorted(entry for entry in islice(directory.iterdir(), 1000) if entry.name[:1] != ".")
        yield from islice((entry for entry in entries if entry.is_dir()), _MOST_FOLDERS)
    except OSError:
        return


# Directories with secrets: accessible to their owner only, ignored by Git; and directories below them.

_OWN_NAME = ".katib"


def make_private(directory: Path) -> None:
    """Create a directory for its owner only, with a `.gitignore` for all its content.

    An existing directory keeps its mode. Unless it is empty or has Katib's name, it may contain the user's own files
    and gets no `.gitignore`.

    Raises:
        OSError: It cannot be created.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    ignore = directory / ".gitignore"
    with suppress(OSError):  # a full or read-only disk is reported by later writes
        if not ignore.exists() and (directory.name == _OWN_NAME or not any(directory.iterdir())):
            write_whole(ignore, "*\n")


def make_below(base: Path, directory: Path, mode: int = 0o777) -> None:
    """Create a directory and those between it and a base, which is not created again after it was moved.

    Raises:
        OSError: It cannot be created, or its base does not exist.
    """
    between = len(directory.relative_to(base).parts)
    for path in reversed([directory, *directory.parents][:between]):
        path.mkdir(mode, exist_ok=True)
