"""The output of a container: read from its pipe in bounded chunks, written to its log, fed to its monitor."""

from __future__ import annotations

import array
import contextlib
import fcntl
import logging
import os
import re
import termios
from collections.abc import Callable
from pathlib import Path

from katib.api.failure_text import LAST_OUTPUT_BYTES, last_line
from katib.local.pods.loop import Loop
from katib.local.pods.monitor import Monitor

_log = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 16
_CHUNKS_PER_TURN = 4
"""A chatty container reads at most 256 kB before the others have their turn."""

_PIPE_BYTES = 1 << 18
_RETRY_SECONDS = 0.01
"""Pause before looking whether a monitor that was behind has caught up."""


_TAIL_BYTES = 1 << 13
"""A trace of the stack may follow the line that says what went wrong."""

_ADDRESS_IN_USE = re.compile(
    rb"address (is )?(already )?in use|eaddrinuse|errno:? 98\b"
    rb"|failed to start rpc server|could not start grpc server|binding port \d+ failed",
    re.IGNORECASE,
)
"""What programs print whose port somebody else has; the second line is all that JAX, TensorFlow and LightGBM say."""


class LogFile:
    """A log on disk. A disk that is full or broken ends the log, not the container."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None
        self._size = 0
        self.problem = ""

    def open(self) -> None:
        """Open for appending; a restarted container continues its log."""
        try:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self._give_up(error)

    def write(self, data: bytes) -> None:
        """Append, as long as the disk takes it."""
        rest = memoryview(data)
        while self._fd is not None and rest:
            try:
                written = os.write(self._fd, rest)
            except OSError as error:
                self._give_up(error)
            else:
                self._size += written
                rest = rest[written:]

    @property
    def directory(self) -> Path:
        """Where it lies."""
        return self._path.parent

    @property
    def size(self) -> int:
        """How many bytes were written."""
        return self._size

    def last_line(self) -> str:
        """Return the last line in the file."""
        return last_line(self._tail())

    def text_from(self, start: int) -> str:
        """Return the end of what was written since the log had this size."""
        return self._tail(start).decode(errors="replace")

    def names_address_in_use(self) -> bool:
        """Return whether the end of the file says that the program could not listen on its port."""
        return _ADDRESS_IN_USE.search(self._tail(size=_TAIL_BYTES)) is not None

    def _tail(self, start: int = 0, size: int = LAST_OUTPUT_BYTES) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(max(start, file.seek(0, os.SEEK_END) - size))
                return file.read()
        except OSError:
            return b""

    def close(self) -> None:
        """Close the file; twice is fine."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _give_up(self, error: OSError) -> None:
        self.problem = f"the log {self._path.name} ends after {self._size} bytes: {error.strerror}"
        _log.warning("Log of a container cut short", extra={"path": str(self._path), "cause": error.strerror})
        self.close()


class Output:
    """The read end of one container run's pipe.

    It ends with the pipe, or after `finish` as soon as what was in the pipe at that moment is read: a daemon that holds
    the pipe open does not delay the end of its container.
    """

    def __init__(self, loop: Loop, log: LogFile, monitor: Monitor | None, after_feed: Callable[[], None]) -> None:
        self._loop = loop
        self._log = log
        self._monitor = monitor
        self._after_feed = after_feed
        self._ended: Callable[[], None] | None = None
        self._left: int | None = None  # bytes to read until the end; None: until the pipe ends
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        with contextlib.suppress(
            OSError, AttributeError
        ):  # only a wish: the account may be at its limit of pipe memory
            fcntl.fcntl(self._read_fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._open = True

    def handed_over(self) -> None:
        """Close the write end, of which the container has a copy."""
        os.close(self.write_fd)

    def start(self) -> None:
        """Begin to read."""
        self._loop.watch(self._read_fd, self._read)

    def abandon(self) -> None:
        """Read nothing: the container could not be started."""
        self._close()

    def finish(self, ended: Callable[[], None]) -> None:
        """Say that the container ended. `ended` is called when its output is read."""
        self._ended = ended
        if not self._open:
            ended()
            return
        self._left = self._waiting_bytes()
        self._read()

    def _read(self) -> None:
        for _ in range(_CHUNKS_PER_TURN):
            if not self._open:
                return
            if self._left == 0:
                self._close()
                return
            if self._monitor is not None and self._monitor.backlogged:
                self._pause()
                return
            if not self._read_chunk():
                break
        if self._left is not None and self._open:
            self._loop.call_soon(self._read)

    def _read_chunk(self) -> bool:
        """Read once; False when there is nothing more for now."""
        try:
            data = os.read(self._read_fd, _CHUNK_BYTES if self._left is None else min(_CHUNK_BYTES, self._left))
        except BlockingIOError:
            if self._left is not None:
                self._left = 0
            return False
        if not data:
            self._close()
            return False
        if self._left is not None:
            self._left -= len(data)
        self._log.write(data)
        if self._monitor is not None:
            self._monitor.feed(data)
            self._after_feed()
        return True

    def _pause(self) -> None:
        self._loop.unwatch(self._read_fd)
        self._loop.call_later(_RETRY_SECONDS, self._resume)

    def _resume(self) -> None:
        if self._open:
            self._loop.unwatch(self._read_fd)
            self._loop.watch(self._read_fd, self._read)
            self._read()

    def _close(self) -> None:
        self._open = False
        self._loop.unwatch(self._read_fd)
        os.close(self._read_fd)
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended()

    def _waiting_bytes(self) -> int:
        count = array.array("i", [0])
        fcntl.ioctl(self._read_fd, termios.FIONREAD, count)
        return count[0]
