"""Files of a user's program: suffixes of shell scripts, and folders that may contain a missing file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

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
