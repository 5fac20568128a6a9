"""Directories with secrets: accessible to their owner only, ignored by Git; and directories below them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from katib.model.files.whole_files import write_whole

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
