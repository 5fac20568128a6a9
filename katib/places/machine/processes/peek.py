"""Looking into pipes before their bytes are moved, for engines and for a guard without one: standard library only."""

from __future__ import annotations

import ctypes
import fcntl
import os
from contextlib import suppress

LINE_BYTES = 1 << 16
"""A line that is longer is not kept in one piece."""

_PIPE_BYTES = 1 << 18


class Peek:
    """Looks into pipes, by way of a pipe of its own: bytes can be moved to a log when they have been looked at.

    A program that is killed between reading a pipe and writing a log takes what it had read along. So bytes are copied
    out of the pipe first (tee), and moved to the log afterwards by the kernel (splice): at every moment each of them is
    in the pipe or in the log. Linux only. Used by one thread, in one process.

    Raises:
        OSError: The kernel cannot, or this process has no descriptors left.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._read, self._write = os.pipe()
        with suppress(OSError):  # only a wish: the account may be at its limit of pipe memory
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

    def size_of_lines(self, pipe: int) -> int | None:
        """Return how many bytes at the front of a pipe are complete lines; None at its end.

        Raises:
            BlockingIOError: Nothing is in it now.
            OSError: The kernel cannot.
        """
        data = self.read(pipe, LINE_BYTES)
        return end_of_lines(data) if data else None

    def close(self) -> None:
        """Close its pipe."""
        os.close(self._read)
        os.close(self._write)


def end_of_lines(data: bytes) -> int:
    r"""Return where the last complete line ends, by `\n` or `\r`; 0 without one, and the length of a very long line."""
    return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1 or (len(data) if len(data) >= LINE_BYTES else 0)
