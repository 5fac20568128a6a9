"""Follows a file that a training program writes, as bytes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 256 << 10


class FileTail:
    """Follows one file by being polled. Not thread-safe.

    The file may appear late, grow, be truncated, be replaced by another one (rotation), or be deleted: what was written
    to the old file is read to its end before the new one is opened. A file that is truncated and has grown beyond its
    old length between two polls looks like one that only grew.

    Attributes:
        problem: Why the file cannot be read now, as an unfinished sentence; empty when it can, or is not there yet.
        beginnings: How often reading began at the start of a file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self.beginnings = 0
        self._file: BinaryIO | None = None
        self._mid_line = False

    @property
    def position(self) -> tuple[os.stat_result, int] | None:
        """The file that is read, as it is now, and how far; None while there is none."""
        return None if self._file is None else (os.fstat(self._file.fileno()), self._file.tell())

    def poll(self) -> Iterator[bytes]:
        """Yield what was written since the last poll, in chunks; a caller that stops early finds the rest next time."""
        while True:
            if self._file is None and not self._open():
                return
            yield from self._read()
            if not self._replaced():
                return
            self._close()
            if self._mid_line:  # the end of one file and the start of another are no line
                self._mid_line = False
                yield b"\n"

    def close(self) -> None:
        """Release the file."""
        self._close()

    def _open(self) -> bool:
        try:
            # A named pipe must not block us, and a terminal must not become ours.
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except FileNotFoundError:
            self.problem = ""
            return False
        except OSError as error:
            self.problem = f"cannot be opened ({error.strerror})"
            return False
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            self.problem = "is not a regular file"
            return False
        self.problem = ""
        self._file = os.fdopen(descriptor, "rb", buffering=0)
        self.beginnings += 1
        return True

    def _read(self) -> Iterator[bytes]:
        assert self._file is not None
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)
            if self._mid_line:
                self._mid_line = False
                yield b"\n"
            self.beginnings += 1
        while chunk := self._file.read(CHUNK_BYTES):
            self._mid_line = not chunk.endswith(b"\n")
            yield chunk

    def _replaced(self) -> bool:
        assert self._file is not None
        try:
            current = self.path.stat()
        except OSError:
            return False  # deleted: anyone who holds it may still write
        return not os.path.samestat(current, os.fstat(self._file.fileno()))

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
