"""Folders of checkpoints: one per trial, created empty or as a copy of its parent's. The standard library alone.

A folder is complete or absent. The copy is made beside it, under a name that begins with a dot, and renamed; a note
records its origin. A crash between any two steps leaves a state that the next attempt replaces.

It is also a program, so that a copy of any size runs in a process of its own:

    python checkpoint_folders.py FOLDER NOTE [ORIGIN]
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import sys
from collections.abc import Sequence
from pathlib import Path


class CheckpointError(Exception):
    """A folder cannot be provided: one sentence with the path, the cause and the remedy."""


class CheckpointGoneError(CheckpointError):
    """The folder to copy does not exist."""


def provide_checkpoint(folder: Path, note: Path, origin: Path | None = None, *, for_everybody: bool = False) -> None:
    """Provide a complete folder. Does nothing if it was created from the same origin before.

    Args:
        note: File that records its origin. To get a new folder, remove it.
        origin: Folder to copy; None to start empty.
        for_everybody: Whether any account may write into it: containers run as their images' users.

    Raises:
        CheckpointGoneError: The origin does not exist.
        CheckpointError: The disk cannot be written, or the origin not read.
    """
    source = origin.name if origin is not None else ""
    if folder.is_dir() and _read(note) == source:
        return
    part = folder.parent / f".{folder.name}.part"
    try:
        note.unlink(missing_ok=True)
        _remove(part)
        _make_parents(folder)
        if origin is None:
            part.mkdir()
        else:
            _copy(origin, part)
        if for_everybody:
            _open_to_everybody(part)
        old = folder.parent / f".{folder.name}.old"
        _remove(old)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        _write(note, source)
        _remove(old)
    except OSError as error:
        with contextlib.suppress(OSError):
            _remove(part)  # frees the space of a full disk
        cause = (error.strerror or str(error)).lower()
        what = f"copied from {origin}" if origin is not None else "made"
        remedy = "free space or change its rights"
        if isinstance(error, PermissionError):
            cause, remedy = f"{cause} to user {os.geteuid()}: {error.filename}", "change its rights or run as its owner"
        raise CheckpointError(f"checkpoint folder {folder} cannot be {what}: {cause}; {remedy}") from error


def has_remains(folder: Path) -> bool:
    """Return whether there is a folder, or the rest of an interrupted removal."""
    return folder.exists() or folder.with_name(f".{folder.name}.old").exists()


def remove_checkpoint(folder: Path) -> None:
    """Remove a folder and the remains of an interrupted copy. Never fails; idempotent."""
    with contextlib.suppress(OSError):  # atomic: no half of a folder is ever visible
        folder.rename(folder.with_name(f".{folder.name}.old"))
    for path in (
        folder,
        *(folder.parent / f".{folder.name}.{end}" for end in ("part", "old", "origin", "origin.lock")),
    ):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _make_parents(folder: Path) -> None:
    """Create the directories of its namespace and experiment, but not the one above, which may have been moved."""
    for path in (folder.parent.parent, folder.parent):
        path.mkdir(exist_ok=True)


def _copy(origin: Path, part: Path) -> None:
    if not origin.is_dir():
        raise CheckpointGoneError(
            f"the checkpoint of trial {origin.name} is gone: there is no folder {origin}; "
            "keep the folders of trials while the experiment runs"
        )
    part.mkdir()
    for place, directories, files in os.walk(origin, onerror=_raise):
        target = part / Path(place).relative_to(origin)
        for name in directories:
            source = Path(place, name)
            if source.is_symlink():
                (target / name).symlink_to(source.readlink())
            else:
                (target / name).mkdir()
                shutil.copymode(source, target / name)
        for name in files:
            source = Path(place, name)
            if source.is_symlink() or stat.S_ISREG(source.stat().st_mode):  # sockets and pipes are left out
                shutil.copy2(source, target / name, follow_symlinks=False)


def _raise(error: OSError) -> None:
    raise error


def _open_to_everybody(part: Path) -> None:
    part.chmod(0o777)
    for place, directories, files in os.walk(part):
        for name in (*directories, *files):
            path = Path(place, name)
            if not path.is_symlink():
                path.chmod(stat.S_IMODE(path.stat().st_mode) | (0o777 if path.is_dir() else 0o666))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)


def _read(note: Path) -> str | None:
    try:
        return note.read_text()
    except OSError:
        return None


def _write(note: Path, source: str) -> None:
    new = note.with_name(f"{note.name}.new")
    new.write_text(source)
    new.replace(note)


def main(arguments: Sequence[str]) -> int:
    """Provide a folder; concurrent processes for the same folder take turns, and the first creates it."""
    folder, note = Path(arguments[0]), Path(arguments[1])
    origin = Path(arguments[2]) if len(arguments) > 2 else None  # noqa: PLR2004
    try:
        _make_parents(folder)
        with note.with_name(f"{note.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            provide_checkpoint(folder, note, origin)
    except (CheckpointError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
