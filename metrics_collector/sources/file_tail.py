"""Follows a file that a training program writes, as bytes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 256 << 10


class FileTail:
    """Follows one file by polling. Not thread-safe.

    The file may appear late, grow, be truncated, be replaced by another one (rotation), or be deleted: the old file is
    read to its end before the new one is opened. A file that is truncated and grows beyond its old length between two
    polls looks like one that only grew.

    Attributes:
        problem: The reason why the file cannot be read, as an unfinished sentence; empty if it can, or is missing.
        beginnings: How often reading started at the beginning of a file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self.beginnings = 0
        self._file: BinaryIO | None = None
        self._mid_line = False

    @property
    def position(self) -> tuple[os.stat_result, int] | None:
        """Status and read position of the open file; None if there is none."""
        return None if self._file is None else (os.fstat(self._file.fileno()), self._file.tell())

    def poll(self) -> Iterator[bytes]:
        """Yield the bytes written since the last poll, in chunks; a caller that stops early gets the rest next time."""
        while True:
            if self._file is None and not self._open():
                return
            yield from self._read()
            if not self._replaced():
                return
            self._close()
            if self._mid_line:  # the end of one file and the start of another are separate lines
                self._mid_line = False
                yield b"\n"

    def close(self) -> None:
        self._close()

    def _open(self) -> bool:
        try:
            # A named pipe must not block, and a terminal must not become the controlling one.
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
            return False  # deleted: a process with an open descriptor may still write
        return not os.path.samestat(current, os.fstat(self._file.fileno()))

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
