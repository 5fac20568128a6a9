"""The output of a container: read from its pipes in bounded chunks, written to its log, fed to its monitor.

Standard output and standard error have a pipe each. Of a pipe whole lines are taken, so that lines of the two are never
mixed: a line that has not ended stays in its pipe until it ends, becomes very long, or the program ends. Lines of one
pipe keep their order; those of two are in the order in which the pipes became readable, or a little later.

Laws, if a container outlives this engine:

- A byte of its output is in a pipe of it or in its log whenever the engine is killed, also if the output alone does.
- In an engine that takes over a container, its monitor reads the log from the beginning before the pipes. So
  the monitor has read all output once and in order, and has the state of its predecessor.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import termios
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from katib.places.machine.pods.log_file import LogFile
from katib.places.machine.pods.tools import PodTools
from katib.places.machine.processes.peek import LINE_BYTES, end_of_lines


class Monitor(Protocol):
    """Follows one primary container of one pod. All methods but `close`'s callback run on the runner's loop thread.

    They do not raise: obstacles to reading are in the report.
    """

    def feed(self, data: bytes) -> None:
        """Take a chunk of the container's output, in any cut. Returns fast; storing happens elsewhere."""

    def poll(self) -> None:
        """Look at the files it follows. Called every 0.2 s or so while the container runs; `close` reads the rest."""

    def begin_again(self) -> None:
        """Say that the container failed, and that its program is about to be started again."""

    def hasten(self) -> None:
        """Announce the end of the container: data that goes with it is to be read now. Does not wait."""

    @property
    def backlogged(self) -> bool:
        """True while storing is behind and the runner should not read more output."""

    @property
    def verdict(self) -> str:
        """Why the trial is to be stopped early; empty while it may continue."""

    def close(self, done: Callable[[str], None]) -> None:
        """Say that no more output comes. `done` is called once, from any thread, when everything read is stored.

        It takes one sentence that explains a missing objective metric; empty when it was found.
        """


_CHUNK_BYTES = LINE_BYTES
_CHUNKS_PER_TURN = 4
"""A chatty container reads at most 256 kB before the others have their turn."""

_PIPE_BYTES = 1 << 18
_RETRY_SECONDS = 0.01
"""Pause before looking whether a monitor that was behind has caught up, or a line has ended."""

_COMPANY_SECONDS = 0.005
"""Lines that follow one another more closely are read together: a turn costs more than a line."""

_LONGEST_PAUSE_SECONDS = 0.16
"""After so long the next look, at a line that has not gone on."""


class _Pipe:
    """One pipe of a container.

    Attributes:
        rest: Data behind the last line, if data that was read does not stay in the pipe.
        seen: Length of the line that has not ended.
        pause: Seconds until it is looked at again.
        read_at: When it was read last, on the loop's clock.
        left: Bytes to read until the end; None: until the pipe ends.
        is_paused: Whether it is read again by a timer.
        is_open: Whether it is read any more.
    """

    __slots__ = ("is_open", "is_paused", "left", "pause", "pipe", "read_at", "rest", "seen")

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self.rest = b""
        self.seen = 0
        self.pause = _RETRY_SECONDS
        self.read_at = -1.0
        self.left: int | None = None
        self.is_paused = False
        self.is_open = True


class Output:
    """The read ends of one container run's pipes, which are new unless they are given.

    It ends with the pipes, or after `finish` as soon as their data of that moment is read: a daemon that holds a
    pipe open does not delay the end of its container.

    Attributes:
        pipes: The read ends, of standard output and standard error.
        write_fds: The other ends of new pipes; the caller closes them.
    """

    def __init__(
        self,
        tools: PodTools,
        log: LogFile,
        monitor: Monitor | None,
        after_feed: Callable[[], None],
        *,
        is_kept: bool,
        pipes: Sequence[int] = (),
    ) -> None:
        self._loop = tools.loop
        self._peek = tools.peek if is_kept else None
        self._log = log
        self._monitor = monitor
        self._after_feed = after_feed
        self._ended: Callable[[], None] | None = None
        self._earlier = log.contents() if pipes else None
        self.write_fds: list[int] = []
        self.pipes = tuple(pipes) or self._open()
        for pipe in self.pipes:
            os.set_blocking(pipe, False)
        self._streams = [_Pipe(pipe) for pipe in self.pipes]
        # Whose bytes are at the end of the log; a guard of an earlier version hands over one pipe for both.
        self._last = self._streams[0] if len(self._streams) == 1 else None

    def _open(self) -> tuple[int, ...]:
        reading: list[int] = []
        try:
            for _ in range(2):
                read, write = os.pipe()
                reading.append(read)
                self.write_fds.append(write)
        except OSError:
            for fd in (*reading, *self.write_fds):
                os.close(fd)
            raise
        with contextlib.suppress(
            OSError, AttributeError
        ):  # only a wish: the account may be at its limit of pipe memory
            fcntl.fcntl(reading[0], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return tuple(reading)

    def start(self) -> None:
        """Begin to read, the log of an earlier engine first."""
        if self._earlier is not None:
            self._loop.call_soon(self._read_earlier)
            return
        for stream in self._streams:
            self._watch(stream)

    def finish(self, ended: Callable[[], None]) -> None:
        """Say that the container ended. `ended` is called when its output is read."""
        self._ended = ended
        for stream in self._streams:
            if stream.is_open:
                waiting = array.array("i", [0])
                fcntl.ioctl(stream.pipe, termios.FIONREAD, waiting)
                stream.left = waiting[0]
        if self._earlier is None:
            self._read_rest()

    def _read_rest(self) -> None:
        """Read the rest of the first stream that has something, then that of the next one."""
        for stream in self._streams:
            if stream.is_open:
                self._read(stream)
                if stream.is_open:
                    return
        self._conclude()

    def _watch(self, stream: _Pipe) -> None:
        self._loop.unwatch(stream.pipe)
        if stream.is_open:
            self._loop.watch(stream.pipe, partial(self._read, stream))

    def _is_held_up(self) -> bool:
        return self._monitor is not None and self._monitor.backlogged

    def _pause(self, stream: _Pipe, seconds: float) -> None:
        """Leave a pipe alone for a while, unless it is left alone already."""
        self._loop.unwatch(stream.pipe)
        if not stream.is_paused:
            stream.is_paused = True
            self._loop.call_later(seconds, partial(self._resume, stream))

    def _read_earlier(self) -> None:
        """Let the monitor read the log; behind its end comes the data of the pipes."""
        for _ in range(_CHUNKS_PER_TURN):
            if self._earlier is None:
                return
            if self._is_held_up():
                self._loop.call_later(_RETRY_SECONDS, self._read_earlier)
                return
            data = next(self._earlier, b"")
            if not data:
                self._earlier = None
                if self._ended is not None:
                    self._read_rest()
                else:
                    self.start()
                return
            if self._monitor is not None:
                self._monitor.feed(data)
                self._after_feed()
        self._loop.call_soon(self._read_earlier)

    def _read(self, stream: _Pipe) -> None:
        began = self._loop.monotonic()
        is_busy, stream.read_at = began - stream.read_at < 2 * _COMPANY_SECONDS, began
        self._read_before(stream)
        for _ in range(_CHUNKS_PER_TURN):
            if not stream.is_open:
                return
            if self._is_held_up():
                self._pause(stream, _RETRY_SECONDS)
                return
            if stream.left == 0:
                self._end(stream)
                return
            if not self._read_chunk(stream):
                break
        if stream.is_open and stream.left is not None:
            self._loop.call_soon(self._read_rest)
        elif stream.is_open and is_busy:
            self._pause(stream, _COMPANY_SECONDS)

    def _read_before(self, stream: _Pipe) -> None:
        """Read the held rest of standard output before an error that was printed behind it."""
        first = self._streams[0]
        if stream is not first and stream.left is None and first.is_open and first.is_paused:
            self._read_chunk(first)

    def _read_chunk(self, stream: _Pipe) -> bool:
        """Take lines once; False when there is nothing more for now."""
        size = _CHUNK_BYTES if stream.left is None else min(_CHUNK_BYTES, stream.left)
        try:
            data = os.read(stream.pipe, size) if self._peek is None else self._peek.read(stream.pipe, size)
        except BlockingIOError:
            if stream.left is not None:
                stream.left = 0
            return False
        if not data:
            self._end(stream)
            return False
        if stream.left is not None:
            stream.left -= len(data)
            lines = stream.rest + data
            stream.rest = b""
        else:
            data = stream.rest + data
            end = end_of_lines(data)
            lines, rest = data[:end], data[end:]
            if self._peek is None:
                stream.rest = rest
            elif not lines:
                self._wait_for_line(stream, len(rest))
                return False
        self._take(stream, lines)
        return True

    def _wait_for_line(self, stream: _Pipe, size: int) -> None:
        """Look again after a pause: the pipe is readable all the time while it holds a part of a line."""
        stream.pause = _RETRY_SECONDS if size != stream.seen else min(2 * stream.pause, _LONGEST_PAUSE_SECONDS)
        stream.seen = size
        self._pause(stream, stream.pause)

    def _take(self, stream: _Pipe, data: bytes) -> None:
        """Write the front of a pipe, or data read from it, to the log, and feed it to the monitor."""
        if not data:
            return
        if self._log.mid_line and self._last is not stream:  # the end of another stream or run without a line end
            self._log.write(b"\n")
            self._feed(b"\n")
        self._last = stream
        if self._peek is None:
            self._log.write(data)
        else:
            self._log.move(data, stream.pipe)
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        if self._monitor is not None:
            self._monitor.feed(data)
            self._after_feed()

    def _resume(self, stream: _Pipe) -> None:
        stream.is_paused = False
        if not stream.is_open or self._earlier is not None:
            return
        if stream.left is not None:
            self._read_rest()
            return
        self._watch(stream)
        self._read(stream)

    def _end(self, stream: _Pipe) -> None:
        self._take(stream, stream.rest)
        self._close(stream)
        if self._ended is not None:
            self._loop.call_soon(self._read_rest)

    def _close(self, stream: _Pipe) -> None:
        if stream.is_open:
            stream.is_open = False
            self._loop.unwatch(stream.pipe)
            os.close(stream.pipe)

    def close(self) -> None:
        """Read nothing more, as of a container that could not be started."""
        for stream in self._streams:
            self._close(stream)
        self._conclude()

    def _conclude(self) -> None:
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended()
