"""Connection from a training program to the process that sends its readings (`katib.sdk.push_program`).

A call costs the program one write to a pipe. It imports no gRPC, starts no thread and keeps no queue, so it may fork,
be short of memory or hold Python's lock for minutes. A forked process writes to the same pipe; one that executes
another program opens a pipe of its own.

The pipe carries lines of up to PIPE_BUF bytes, which the kernel never mixes:

    TIME STEP NAME VALUE   a reading: microseconds since 1970; STEP is empty without one
    flush NUMBER           answered with NUMBER when all earlier readings are settled
    end                    answered with `end` when all earlier readings are settled or after a timeout

separated by tabs; names have none.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

GIVE_UP_VARIABLE = "KATIB_GIVE_UP_SECONDS"
GIVE_UP_SECONDS = 120.0
"""Timeout of a program's end for an unavailable DB manager."""

_MARGIN_SECONDS = 10.0
"""Additional time for the process to start and to end."""

_TERMINATE_SECONDS = 10.0
"""The same timeout after SIGTERM: less than the usual grace period."""

_HANDLER_SECONDS = 1.0
"""The same, for a program with its own handler of SIGTERM, which has more to do."""

_MOST_STARTS = 3
"""A process that fails is not restarted more often; its error is on stderr."""

_ANSWERS = 3
"""Descriptor of the process's end of the answers."""

_END = b"end\n"
_NOTHING = b""
"""Not an answer: waiting for it waits for the end of all answers."""


def sender() -> Sender:
    """Return the sender of this program."""
    return _sender


def give_up_seconds() -> float:
    """Return the timeout of the end for an unavailable DB manager."""
    try:
        return float(os.environ[GIVE_UP_VARIABLE])
    except (KeyError, ValueError):
        return GIVE_UP_SECONDS


class Sender:
    """The process beside the program, started by the first reading. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: a signal handler may need it while its thread holds it
        self._owner = 0  # the program that started it and waits for it
        self._child = 0
        self._pipe = -1
        self._answers = -1
        self._inodes: dict[int, int] = {}  # of the two
        self._starts = 0
        self._flushes = 0
        self._prepared = 0  # the program whose end is prepared

    def send(self, readings: Sequence[tuple[str, str]], step: int | None) -> None:
        """Send readings, names and values as text. Never raises for errors of the process."""
        now = time.time_ns() // 1000
        number = "" if step is None else step
        lines = [f"{now}\t{number}\t{name}\t{text}\n" for name, text in readings]
        data = "".join(lines).encode(errors="replace")
        if len(data) <= select.PIPE_BUF:
            self._write(data)
        else:
            for chunk in _chunks(lines):
                self._write(chunk)

    def flush(self, seconds: float) -> bool:
        """Wait until all sent readings are settled, within a timeout; return whether they are."""
        if not self._is_mine():
            return True
        if not self._lock.acquire(timeout=seconds):
            return False
        try:
            self._flushes += 1
            wanted = b"%d\n" % self._flushes
            self._write(b"flush\t" + wanted)
            return self._answer(wanted, seconds)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Send everything and wait for it, within a timeout. Later readings start another process."""
        if not self._is_mine():
            return
        with self._lock:
            self._write(_END)
            if self._is_mine():
                if self._answer(_END, give_up_seconds() + _MARGIN_SECONDS):
                    self._answer(_NOTHING, _MARGIN_SECONDS)  # until it has ended: it should not outlive the program
                else:
                    say("the process that sends metrics does not end; it is left alone")
            self._let_go()
            self._starts = 0

    def forked(self) -> None:
        """Continue in a forked process: with the same pipe, without the threads that may have held the lock."""
        self._lock = threading.RLock()
        self._starts = 0

    # --- the pipe -----------------------------------------------------------------------------------------------------

    def _is_mine(self) -> bool:
        return self._pipe >= 0 and self._owner == os.getpid()

    def _write(self, data: bytes) -> None:
        while True:
            pipe = self._pipe
            if pipe < 0 and not self._start():
                return
            try:
                # A program that closes all descriptors, as daemons do, may reuse this number for another file.
                if os.fstat(self._pipe).st_ino == self._inodes[self._pipe]:
                    os.write(self._pipe, data)
                    return
            except (OSError, KeyError):
                pass
            with self._lock:
                if self._pipe == pipe:
                    if self._is_mine():  # it has ended by itself; its last message is on stderr
                        last = " for good" * (self._starts >= _MOST_STARTS)
                        say(f"the process that sends metrics has ended{last}; what it had not sent is lost")
                    self._let_go()

    def _answer(self, wanted: bytes, seconds: float) -> bool:
        """Wait for an answer; return whether it came, or none will come any more."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        while poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            data = os.read(self._answers, select.PIPE_BUF)
            if not data or wanted in data.splitlines(keepends=True):
                return True
        return False

    def _let_go(self) -> None:
        for descriptor, inode in self._inodes.items():
            with contextlib.suppress(OSError):
                if os.fstat(descriptor).st_ino == inode:
                    os.close(descriptor)
        self._pipe = self._answers = -1
        self._inodes = {}
        if self._owner == os.getpid():
            with contextlib.suppress(OSError):  # the program may have waited for all its children
                os.waitpid(self._child, os.WNOHANG)

    # --- the process --------------------------------------------------------------------------------------------------

    def _start(self) -> bool:
        """Start the process; return whether there is one to write to."""
        with self._lock:
            if self._pipe >= 0:
                return True
            if self._starts >= _MOST_STARTS:
                return False
            self._starts += 1
            try:
                self._spawn()
            except OSError as error:
                self._starts = _MOST_STARTS
                say(f"metrics are not sent, because no process can be started for it: {error}")
                return False
            if self._prepared != os.getpid():
                self._prepared = os.getpid()
                _call_at_exit(self.close)
            _flush_at_sigterm(self)
            return True

    def _spawn(self) -> None:
        pipe_read, pipe = os.pipe()
        self._answers, answers_write = os.pipe()
        self._inodes = {descriptor: os.fstat(descriptor).st_ino for descriptor in (pipe, self._answers)}
        self._pipe, self._owner = pipe, os.getpid()
        python = sys.executable or "python3"  # empty in a program that embeds Python
        actions = [
            (os.POSIX_SPAWN_DUP2, pipe_read, 0),
            (os.POSIX_SPAWN_DUP2, answers_write, _ANSWERS),
            (os.POSIX_SPAWN_DUP2, 2, 1),
        ]
        try:
            # Signals to the whole group, such as Ctrl-C, are for the program: they stay blocked there.
            self._child = os.posix_spawnp(
                python,
                [python, "-P", "-Wignore", "-c", _PROGRAM, str(Path(__file__).parents[2])],
                os.environ,
                file_actions=actions,
                setsigmask=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT],
            )
        except OSError:
            self._let_go()
            raise
        finally:
            os.close(pipe_read)
            os.close(answers_write)


_PROGRAM = "import sys; sys.path.append(sys.argv[1]); from katib.sdk.push_program import main; main()"
"""Imports this very package, however the program found it. Its path comes last: others may be beside it."""


def _chunks(lines: Sequence[str]) -> list[bytes]:
    """Join lines into chunks that the kernel writes atomically."""
    chunks = [b""]
    for line in lines:
        data = line.encode(errors="replace")
        if len(chunks[-1]) + len(data) > select.PIPE_BUF:
            chunks.append(b"")
        chunks[-1] += data
    return chunks


def say(sentence: str) -> None:
    """Write a sentence to stderr, in the output of the trial."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # a program without stderr
        sys.stderr.write(f"katib: {sentence}\n")
        sys.stderr.flush()


# --- the end of a program ---------------------------------------------------------------------------------------------


def _call_at_exit(close: Callable[[], None]) -> None:
    """Register a function for the end of this program.

    A child of multiprocessing runs no exit functions, but finalizers of multiprocessing. And a parent waits for its
    children in an exit function, before which the sender must not end.
    """
    if (util := sys.modules.get("multiprocessing.util")) is not None:
        util.Finalize(None, close, exitpriority=-100)
    else:
        atexit.register(close)


def _flush_at_sigterm(sender: Sender) -> None:
    """Make SIGTERM wait for the readings before its previous handler runs."""
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may set handlers
    before = signal.getsignal(signal.SIGTERM)
    if before in (signal.SIG_IGN, None) or getattr(before, "katib_chained", False):
        return

    def handle(number: int, frame: Any) -> None:
        if callable(before):
            sender.flush(_HANDLER_SECONDS)
            before(number, frame)
            return
        sender.flush(_TERMINATE_SECONDS)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    handle.katib_chained = True  # type: ignore[attr-defined]  # so that another start does not chain it again
    with contextlib.suppress(ValueError):  # not allowed in a subinterpreter
        signal.signal(signal.SIGTERM, handle)


_sender = Sender()
os.register_at_fork(after_in_child=_sender.forked)
