"""The output of a container: read from its pipe in bounded chunks, written to its log, fed to its monitor.

Laws, where a container outlives this engine:

- A byte of its output is in its pipe or in its log whenever the engine is killed, also where the output alone does.
- An engine that goes on with a container has its monitor read the log from the beginning before it reads the pipe. So
  the monitor has read what was printed, all of it once and in order, and stands as that of the engine before it stood.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import termios
from collections.abc import Callable
from typing import Protocol

from katib.local.pods.log_file import LogFile
from katib.local.pods.tools import PodTools


class Monitor(Protocol):
    """Follows one primary container of one pod. All methods but `close`'s callback run on the runner's loop thread.

    None of them raises: what keeps it from reading is in its report.
    """

    def feed(self, data: bytes) -> None:
        """Take a chunk of the container's output, in any cut. Returns fast; storing happens elsewhere."""

    def poll(self) -> None:
        """Look at the files it follows. Called every 0.2 s or so while the container runs; `close` reads the rest."""

    def hasten(self) -> None:
        """Say that the container is about to be ended: what goes with it is to be read now. Does not wait."""

    @property
    def backlogged(self) -> bool:
        """True while storing is behind and the runner should not read more output."""

    @property
    def verdict(self) -> str:
        """Why the trial is to be stopped early; empty while it may go on."""

    def close(self, done: Callable[[str], None]) -> None:
        """Say that no more output comes. `done` is called once, from any thread, when everything read is stored.

        It takes one sentence that explains a missing objective metric; empty when it was found.
        """


_CHUNK_BYTES = 1 << 16
_CHUNKS_PER_TURN = 4
"""A chatty container reads at most 256 kB before the others have their turn."""

_PIPE_BYTES = 1 << 18
_RETRY_SECONDS = 0.01
"""Pause before looking whether a monitor that was behind has caught up."""


class Output:
    """The read end of one container run's pipe, which is new unless it is given.

    It ends with the pipe, or after `finish` as soon as what was in the pipe at that moment is read: a daemon that holds
    the pipe open does not delay the end of its container.

    Attributes:
        pipe: The read end.
        write_fd: The other end of a new pipe; the caller closes it.
    """

    def __init__(
        self,
        tools: PodTools,
        log: LogFile,
        monitor: Monitor | None,
        after_feed: Callable[[], None],
        *,
        is_kept: bool,
        pipe: int | None = None,
    ) -> None:
        self._loop = tools.loop
        self._peek = tools.peek if is_kept else None
        self._log = log
        self._monitor = monitor
        self._after_feed = after_feed
        self._ended: Callable[[], None] | None = None
        self._left: int | None = None  # bytes to read until the end; None: until the pipe ends
        self._open = True
        self._earlier = None if pipe is None else log.contents()
        if pipe is not None:
            self.pipe, self.write_fd = pipe, -1
            os.set_blocking(pipe, False)
            return
        self.pipe, self.write_fd = os.pipe()
        os.set_blocking(self.pipe, False)
        with contextlib.suppress(
            OSError, AttributeError
        ):  # only a wish: the account may be at its limit of pipe memory
            fcntl.fcntl(self.pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def start(self) -> None:
        """Begin to read, what the log holds of an earlier engine first."""
        if self._earlier is None:
            self._loop.watch(self.pipe, self._read)
        else:
            self._loop.call_soon(self._read)

    def finish(self, ended: Callable[[], None]) -> None:
        """Say that the container ended. `ended` is called when its output is read."""
        self._ended = ended
        if not self._open:
            ended()
            return
        waiting = array.array("i", [0])
        fcntl.ioctl(self.pipe, termios.FIONREAD, waiting)
        self._left = waiting[0]
        self._read()

    def _read(self) -> None:
        for _ in range(_CHUNKS_PER_TURN):
            if not self._open:
                return
            if self._monitor is not None and self._monitor.backlogged:
                self._loop.unwatch(self.pipe)
                self._loop.call_later(_RETRY_SECONDS, self._resume)
                return
            if self._earlier is not None:
                self._read_earlier()
                continue
            if self._left == 0:
                self.close()
                return
            if not self._read_chunk():
                break
        if self._open and (self._left is not None or self._earlier is not None):
            self._loop.call_soon(self._read)

    def _read_earlier(self) -> None:
        """Have the monitor read a chunk of the log; behind its end comes what is in the pipe."""
        assert self._earlier is not None
        data = next(self._earlier, b"")
        if not data:
            self._earlier = None
            self._loop.watch(self.pipe, self._read)
        elif self._monitor is not None:
            self._monitor.feed(data)
            self._after_feed()

    def _read_chunk(self) -> bool:
        """Read once; False when there is nothing more for now."""
        try:
            size = _CHUNK_BYTES if self._left is None else min(_CHUNK_BYTES, self._left)
            data = os.read(self.pipe, size) if self._peek is None else self._peek.read(self.pipe, size)
        except BlockingIOError:
            if self._left is not None:
                self._left = 0
            return False
        if not data:
            self.close()
            return False
        if self._left is not None:
            self._left -= len(data)
        if self._peek is None:
            self._log.write(data)
        else:
            self._log.move(data, self.pipe)
        if self._monitor is not None:
            self._monitor.feed(data)
            self._after_feed()
        return True

    def _resume(self) -> None:
        if self._open:
            if self._earlier is None:
                self._loop.unwatch(self.pipe)
                self._loop.watch(self.pipe, self._read)
            self._read()

    def close(self) -> None:
        """Read nothing more, as of a container that could not be started."""
        self._open = False
        self._loop.unwatch(self.pipe)
        os.close(self.pipe)
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended()
