"""Reading a pipe without taking from it, so that a byte can be moved to a log when it has been looked at.

A program that is killed between reading a pipe and writing a log takes what it had read along. So bytes are copied out
of the pipe first (tee), and moved from the pipe to the log afterwards by the kernel (splice): at every moment each of
them is in the pipe or in the log. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import logging
import os
import sys
from typing import Self

_log = logging.getLogger(__name__)

_PIPE_BYTES = 1 << 18


class Peek:
    """Looks into pipes, by way of a pipe of its own. Used by one thread.

    Raises:
        OSError: The kernel cannot, or this process has no descriptors left.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._read, self._write = os.pipe()
        with contextlib.suppress(OSError):  # only a wish: the account may be at its limit of pipe memory
            fcntl.fcntl(self._write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._try_out()

    @classmethod
    def open(cls) -> Self | None:
        """Return one; None where the kernel does not allow it. Pipes are read as they are then."""
        if sys.platform != "linux":
            return None
        try:
            return cls()
        except OSError as error:
            _log.warning("Output may lack its end when the engine is killed", extra={"cause": error.strerror})
            return None

    def _try_out(self) -> None:
        read, write = os.pipe()
        try:
            with contextlib.suppress(BlockingIOError):
                self.read(read, 1)
        except OSError:
            self.close()
            raise
        finally:
            os.close(read)
            os.close(write)

    def read(self, pipe: int, size: int) -> bytes:
        """Return up to so many bytes from the front of a pipe, which stay in it; none at its end.

        Raises:
            BlockingIOError: Nothing is in it now.
            OSError: The kernel cannot.
        """
        count: int = self._libc.tee(pipe, self._write, ctypes.c_size_t(size), os.SPLICE_F_NONBLOCK)
        if count < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return os.read(self._read, count) if count else b""

    def close(self) -> None:
        """Close its pipe."""
        os.close(self._read)
        os.close(self._write)
