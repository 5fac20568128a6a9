"""The log of a container on disk: one file that is written to, and before it those that were full.

`main.log` is written to. When it is full it becomes `main.log.1`, the next one `main.log.2` and so on; of these only
the newest are kept. A file is renamed once and never again, so a reader at its end finds the next one by its
number.

Beside each file stands when its bytes came, in a file with its inode number: `main.times.4711`. A byte came at
the time of the last record at or before it. Output of a time without an engine has no record of its own.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from katib.model.failure_text import LAST_OUTPUT_BYTES, last_line

_log = logging.getLogger(__name__)

TAIL_BYTES = 1 << 13
"""A trace of the stack may follow the line with the cause."""

_LEFT_BYTES = 1 << 14
"""Kept of the log of a container that has filled the disk."""

_ADDRESS_IN_USE = re.compile(
    rb"address (is )?(already )?in use|eaddrinuse|errno:? 98\b"
    rb"|failed to start rpc server|could not start grpc server|binding port \d+ failed",
    re.IGNORECASE,
)
"""The output of programs whose port is taken; the second line is all that JAX, TensorFlow and LightGBM print."""

_CHUNK_BYTES = 1 << 16

_CANNOT_MOVE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""Errors of file systems to which the kernel cannot move bytes from a pipe. They are read and written there."""

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


TIME_RECORD = struct.Struct("<QQ")
"""Place in the file, and microseconds since 1970."""

RUN_BEGINS = 1 << 63
"""Set in the time of a record if the container was started, or started again."""

_TIME_STEP_SECONDS = 0.02
"""Records are no closer, so that a program that prints each character costs little."""

_MOST_TIMES_BYTES = 1 << 16
"""The records of a file may take so much more than the file itself."""


@dataclass(frozen=True, slots=True)
class LogLimits:
    """How much is kept of the output of a container, as the kubelet's settings of these names.

    Attributes:
        max_bytes: `containerLogMaxSize`, of one file.
        max_files: `containerLogMaxFiles`, the one that is written to included.
    """

    max_bytes: int = 10 << 20
    max_files: int = 5

    @property
    def total_bytes(self) -> int:
        """How much all files of a log take at most."""
        return self.max_bytes * self.max_files


def log_parts(path: Path) -> list[Path]:
    """Return the files that hold a log, the oldest first; the last one is the path itself, there or not."""
    return [*(path.with_name(f"{path.name}.{number}") for number in _numbers(path)), path]


def times_of(path: Path, status: os.stat_result) -> Path:
    """Return the file that says when the bytes of one of the files of a log came."""
    return path.with_name(f"{path.stem}.times.{status.st_ino}")


def read_end(path: Path, size: int) -> bytes:
    """Return the last bytes of a log, as far as it can be read."""
    end = b""
    for part in reversed(log_parts(path)):
        try:
            with part.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - (size - len(end))))
                end = file.read() + end
        except OSError:  # not written yet, or gone this moment
            continue
        if len(end) >= size:
            break
    return end


def names_address_in_use(end: bytes) -> bool:
    """Return whether the end of an output says that the program could not listen on its port."""
    return _ADDRESS_IN_USE.search(end) is not None


def _numbers(path: Path) -> list[int]:
    names: list[str] = []
    with suppress(FileNotFoundError):  # the directory is removed this moment
        names = [part.name[len(path.name) + 1 :] for part in path.parent.glob(f"{path.name}.*")]
    return sorted(int(name) for name in names if name.isdecimal())


def _gap_mark(size: int) -> bytes:
    """Return the line that stands in a log for output that is not there."""
    return b"\n[katib] %d bytes of output are missing here: the disk was full\n" % size


class LogFile:
    """A log on disk. A disk that is full or broken makes it incomplete; it never holds the container up.

    Args:
        limits: How much is kept.
        on_full: Called when something could not be written because the disk is full.
        now: Returns the time, in seconds since 1970.
        has_times: Whether a file beside it says when its bytes came.

    Attributes:
        size: How many bytes were written.
        mid_line: Whether it does not end with the end of a line.
        problem: Why it is not complete, besides removals because of its limits; empty when it is.
    """

    def __init__(
        self,
        path: Path,
        limits: LogLimits | None = None,
        on_full: Callable[[], None] = lambda: None,
        now: Callable[[], float] = time.time,
        *,
        has_times: bool = True,
    ) -> None:
        self._now = now
        self._has_times = has_times
        self._times: int | None = None
        self._times_size = 0
        self._noted_at = 0.0
        self.path = path
        self._limits = limits or LogLimits()
        self._on_full = on_full
        self._fd: int | None = None
        self.size = 0
        self._file_size = 0
        self.mid_line = False
        self._lost = 0
        self._gap = 0  # of it, since something was written
        self.problem = ""
        self._can_move = True
        self._left = 0  # of what is to be moved

    def open(self) -> None:
        """Open for appending; a restarted container continues its log."""
        try:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            status = os.fstat(self._fd)
            self._file_size = status.st_size
        except OSError as error:
            self._give_up(error)
            return
        if not self._has_times:
            return
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | (0 if status.st_size else os.O_TRUNC)
            self._times = os.open(times_of(self.path, status), flags, 0o644)
            self._times_size = os.fstat(self._times).st_size

    def note_time(self, mark: int = 0) -> None:
        """Note when the bytes come that are written next; with `RUN_BEGINS`, that they are of a new run."""
        now = self._now()
        if self._times is None or (not mark and abs(now - self._noted_at) < _TIME_STEP_SECONDS):
            return
        if mark or self._times_size <= self._file_size + _MOST_TIMES_BYTES:
            self._noted_at = now
            with suppress(OSError):  # the log itself is what counts
                record = TIME_RECORD.pack(self._file_size, int(now * 1e6) | mark)
                self._times_size += os.write(self._times, record)

    def contents(self) -> Iterator[bytes]:
        """Yield the content of the files, in chunks, up to the first that cannot be read."""
        for part in log_parts(self.path):
            try:
                with part.open("rb") as file:
                    while chunk := file.read(_CHUNK_BYTES):
                        self.size += len(chunk)
                        self.mid_line = not chunk.endswith(b"\n")
                        yield chunk
            except OSError:
                return

    def move(self, data: bytes, pipe: int) -> None:
        """Take bytes from a pipe, and append as many as the disk takes.

        Args:
            data: The bytes that are at the front of the pipe. They move to the disk within the kernel, so that each of
                them is in the pipe or in the log whenever this process is killed.
        """
        self._left = len(data)
        self.write(data, pipe)
        while self._left and (rest := os.read(pipe, self._left)):  # the disk has not taken it
            self._left -= len(rest)

    def _move(self, fd: int, data: memoryview, pipe: int) -> int:
        """Append the front of a pipe to the file, and return its length."""
        try:
            if (flags := fcntl.fcntl(fd, fcntl.F_GETFL)) & os.O_APPEND:  # the kernel moves to a position only
                fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_APPEND)
            os.lseek(fd, 0, os.SEEK_END)
            moved = os.splice(pipe, fd, len(data))
        except OSError as error:
            if error.errno not in _CANNOT_MOVE:
                raise
            self._can_move = False
            fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_APPEND)
            return os.write(fd, data)
        self._left -= moved
        return moved

    def write(self, data: bytes, pipe: int | None = None) -> None:
        """Append as much as the disk takes. A line is kept in one file, unless it is longer than the rest of that."""
        size = len(data)
        if self._gap:
            data = _gap_mark(self._gap) + data
        first = len(data) - size
        start = 0
        while self._fd is not None and start < len(data):
            try:
                room = self._limits.max_bytes - self._file_size
                if room <= 0:
                    self._rotate()
                    continue
                end = min(len(data), start + room)
                if end < len(data):
                    line_end = data.rfind(b"\n", start, end) + 1
                    if not line_end and self._file_size and not self.mid_line:
                        self._rotate()
                        continue
                    end = line_end or end
                self.note_time()
                if pipe is None or not self._can_move:
                    written = os.write(self._fd, memoryview(data)[start:end])
                elif start < first:
                    written = os.write(self._fd, memoryview(data)[start : min(first, end)])
                else:
                    written = self._move(self._fd, memoryview(data)[start:end], pipe)
            except OSError as error:
                if error.errno not in _NO_SPACE:
                    self._give_up(error)
                    return
                lost = len(data) - max(start, len(data) - size)
                self._lost += lost
                self._gap += lost
                self.problem = f"the log {self.path.name} lacks {self._lost} bytes: {os.strerror(errno.ENOSPC)}"
                self._on_full()
                return
            self._gap = 0
            self.size += written
            self._file_size += written
            start += written
            self.mid_line = data[start - 1 : start] != b"\n"

    def _rotate(self) -> None:
        """Go on with an empty file, and remove the oldest ones."""
        assert self._fd is not None
        numbers = _numbers(self.path)
        self.path.rename(self.path.with_name(f"{self.path.name}.{(numbers or [0])[-1] + 1}"))
        self.close()
        self.open()
        self._remove(numbers[: max(0, len(numbers) + 2 - self._limits.max_files)])

    def _remove(self, numbers: list[int]) -> None:
        for number in numbers:
            part = self.path.with_name(f"{self.path.name}.{number}")
            with suppress(FileNotFoundError):
                times_of(self.path, part.stat()).unlink(missing_ok=True)
            part.unlink(missing_ok=True)

    def shrink(self) -> None:
        """Keep the end only: the disk is full, and this log has filled it."""
        end = read_end(self.path, _LEFT_BYTES)
        removed = max(0, self.size - len(end))
        try:
            self._remove(_numbers(self.path))
            times_of(self.path, self.path.stat()).unlink(missing_ok=True)
            self.path.write_bytes(_gap_mark(removed) * bool(removed) + end + _gap_mark(self._gap) * bool(self._gap))
        except OSError as error:
            _log.warning("Log of a container not shortened", extra={"path": str(self.path), "cause": error.strerror})

    def last_line(self) -> str:
        return last_line(read_end(self.path, LAST_OUTPUT_BYTES))

    def text_from(self, start: int) -> str:
        """Return the end of the output since the log had this size."""
        return read_end(self.path, min(LAST_OUTPUT_BYTES, self.size - start)).decode(errors="replace")

    def names_address_in_use(self) -> bool:
        """Return whether the end of the file says that the program could not listen on its port."""
        return names_address_in_use(read_end(self.path, TAIL_BYTES))

    def close(self) -> None:
        """Close the files; twice is fine."""
        if self._times is not None:
            os.close(self._times)
            self._times = None
            self._noted_at = 0.0
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _give_up(self, error: OSError) -> None:
        self.problem = f"the log {self.path.name} ends after {self.size} bytes: {error.strerror}"
        _log.warning("Log of a container cut short", extra={"path": str(self.path), "cause": error.strerror})
        self.close()
