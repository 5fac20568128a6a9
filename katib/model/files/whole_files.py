"""Atomic writes of files: a crash or a full disk leaves the previous content."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_whole(path: Path, content: str | bytes, *, is_private: bool = False) -> None:
    """Replace a file atomically: readers and executions see the old or the new content.

    Args:
        path: Path in an existing directory.
        content: Text is written as UTF-8.
        is_private: Whether only its owner may read it.

    Raises:
        OSError: It cannot be written.
    """
    draft = path.with_name(f".{path.name}-{os.getpid()}-{threading.get_native_id()}")
    draft.unlink(missing_ok=True)  # left by a killed process
    try:
        draft.touch(mode=0o600 if is_private else 0o666, exist_ok=False)
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_named(path: Path, content: str | bytes) -> None:
    """Write a file named by a user: through a link, or into a device or a pipe; otherwise as `write_whole`.

    Raises:
        OSError: It cannot be written.
    """
    place = path.resolve()
    if place.exists() and not place.is_file():
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    else:
        write_whole(place, content)
