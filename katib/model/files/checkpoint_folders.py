"""Folders of checkpoints: each trial's own, made empty or as a copy of its parent's. The standard library alone.

A folder is complete or absent. The copy is made beside it, under a name that begins with a dot, and renamed; a note
says what a folder was made from. A crash between any two steps leaves something that the next attempt replaces.

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
    """A folder cannot be provided: one sentence with the path, the cause and what helps."""


class CheckpointGoneError(CheckpointError):
    """What was to be copied is not there."""


def provide_checkpoint(folder: Path, note: Path, origin: Path | None = None, *, for_everybody: bool = False) -> None:
    """Have a complete folder. Does nothing when it was made from the same origin before.

    Args:
        folder: Where.
        note: File that says what it was made from. Whoever wants a new folder removes it.
        origin: What it starts as a copy of; None: it starts empty.
        for_everybody: Whether any account may write into it: containers run as whom their images say.

    Raises:
        CheckpointGoneError: The origin is gone.
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
            _remove(part)  # a disk that is full has its room again
        cause = (error.strerror or str(error)).lower()
        what = f"copied from {origin}" if origin is not None else "made"
        remedy = "free space or change its rights"
        if isinstance(error, PermissionError):
            cause, remedy = f"{cause} to user {os.geteuid()}: {error.filename}", "change its rights or run as its owner"
        raise CheckpointError(f"checkpoint folder {folder} cannot be {what}: {cause}; {remedy}") from error


def has_remains(folder: Path) -> bool:
    """Return whether there is a folder, or the rest of one whose removal was interrupted."""
    return folder.exists() or folder.with_name(f".{folder.name}.old").exists()


def remove_checkpoint(folder: Path) -> None:
    """Remove a folder and what an interrupted copy left of it. Never fails; removing twice is fine."""
    with contextlib.suppress(OSError):  # at no time is half of a folder there
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
    """Make the directories of its namespace and experiment; the one above them was moved away when it is not there."""
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
            if source.is_symlink() or stat.S_ISREG(source.stat().st_mode):  # a socket or a pipe is no checkpoint
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
    """Provide a folder; several processes that want the same one take turns, and the first makes it."""
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
