"""Reading pipes without consuming them, for engines and for a guard without one: standard library only."""

from __future__ import annotations

import ctypes
import fcntl
import os
from contextlib import suppress

LINE_BYTES = 1 << 16
"""A longer line is not kept in one piece."""

_PIPE_BYTES = 1 << 18


class PipePeeker:
    """Reads pipes without consuming them, through a pipe of its own: bytes can be moved to a log after inspection.

    A program that is killed between reading a pipe and writing a log loses the bytes read. So bytes are copied out of
    the pipe first (tee), and moved to the log afterwards by the kernel (splice): at any time each of them is in the
    pipe or in the log. Linux only. Used by one thread, in one process.

    Raises:
        OSError: The kernel does not support it, or this process has no descriptors left.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._read, self._write = os.pipe()
        with suppress(OSError):  # optional: the account may be at its limit of pipe memory
            fcntl.fcntl(self._write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._try_out()

    def _try_out(self) -> None:
        read, write = os.pipe()
        try:
            with suppress(BlockingIOError):
                self.read(read, 1)
        except OSError:
            self.close()
            raise
        finally:
            os.close(read)
            os.close(write)

    def read(self, pipe: int, size: int) -> bytes:
        """Return up to `size` bytes from the front of a pipe, which stay in it; none at its end.

        Raises:
            BlockingIOError: It is empty now.
            OSError: The kernel does not support it.
        """
        count: int = self._libc.tee(pipe, self._write, ctypes.c_size_t(size), os.SPLICE_F_NONBLOCK)
        if count < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return os.read(self._read, count) if count else b""

    def size_of_lines(self, pipe: int) -> int | None:
        """Return the number of bytes of complete lines at the front of a pipe; None at its end.

        Raises:
            BlockingIOError: It is empty now.
            OSError: The kernel does not support it.
        """
        data = self.read(pipe, LINE_BYTES)
        return end_of_lines(data) if data else None

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


def end_of_lines(data: bytes) -> int:
    r"""Return the end of the last complete line, by `\n` or `\r`; 0 without one, and the length of a very long line."""
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 or (len(data) if len(data) >= LINE_BYTES else 0)
