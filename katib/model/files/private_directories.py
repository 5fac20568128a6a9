"""Directories that hold secrets: for their owner only, and left out by Git; and those that are made below them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from katib.model.files.whole_files import write_whole

_OWN_NAME = ".katib"


def make_private(directory: Path) -> None:
    """Make a directory for its owner only, with a `.gitignore` of all that is in it.

    A directory that was there keeps its mode. Unless it is empty or has our name, it may hold the user's own files and
    gets no `.gitignore`.

    Raises:
        OSError: It cannot be made.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    ignore = directory / ".gitignore"
    with suppress(OSError):  # a full or read-only disk is reported by what the directory is for
        if not ignore.exists() and (directory.name == _OWN_NAME or not any(directory.iterdir())):
            write_whole(ignore, "*\n")


def make_below(base: Path, directory: Path, mode: int = 0o777) -> None:
    """Make a directory and those between it and another one, which is not made again after it was moved away.

    Raises:
        OSError: It cannot be made, or its base is not there.
    """
    between = len(directory.relative_to(base).parts)
    for path in reversed([directory, *directory.parents][:between]):
        path.mkdir(mode, exist_ok=True)
