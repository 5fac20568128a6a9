"""State that a guard keeps for the next engine: running programs, their output, their exits, and notes.

An engine gives each program that is to outlive it a group, and each group a note that only engines understand. While
there is an engine, it reads the programs' output; the guard holds a copy of the read end of each pipe and does not use
it. Without an engine, the guard moves the output from the pipes to the ends of the log files. Whole bytes are moved in
the kernel (splice), so at any time a byte is either in the pipe or in the log, whichever of the two processes is
killed. An incomplete line stays in its pipe: a program has two, and their lines are not mixed.

A log that accepts no more data (it reached its maximum size, the disk is full, its file system does not support splice)
loses nothing: the program blocks as soon as its pipe is full, and continues with the next engine.

Part of the guard: standard library only.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time

from katib.places.machine.processes import wire

TYPE_CHECKING = False  # as in `wire`
if TYPE_CHECKING:
    from katib.places.machine.processes.peek import PipePeeker

VERSION = 1
"""Version of the hand-over. An engine of another version ends the guard, and with it everything that the guard
keeps."""

_CHUNK = 1 << 18
_RETRY_SECONDS = 0.1
"""Interval of retries for a pipe without progress: the disk may have space by now, or the line an end."""

_CREDENTIALS = struct.Struct("3i")


class KeptProgram:
    """A program that outlives the engine that requested it. `status` is None until it has ended."""

    __slots__ = (
        "began",
        "ended",
        "group",
        "last_output",
        "limit",
        "log",
        "log_fd",
        "name",
        "outputs",
        "path",
        "pid",
        "start",
        "status",
    )

    def __init__(self, group: str, name: object, log: str, limit: int, outputs: list[int]) -> None:
        self.group = group
        self.name = name
        self.log = log
        self.limit = limit
        self.outputs = outputs
        self.log_fd: int | None = None
        self.pid = self.start = 0
        self.last_output = -1
        self.path = ""
        self.began = self.ended = 0.0
        self.status: int | None = None

    def pump(self, output: int, peek: PipePeeker | None = None) -> bool | None:
        """Move waiting bytes from a pipe to the log; False if nothing can be moved now, None at the end of the pipe.

        The position of the log's descriptor is its end: there is no other writer.

        Args:
            peek: Finds the end of the last complete line, up to which bytes are moved; None to move everything.
        """
        try:
            if self.log_fd is None:
                self.log_fd = os.open(self.log, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                os.lseek(self.log_fd, 0, os.SEEK_END)
            size = os.lseek(self.log_fd, 0, os.SEEK_CUR)
            if size >= self.limit:
                return False
            count = _CHUNK if peek is None else peek.size_of_lines(output)
            if not count:
                return None if count is None else False
            if output != self.last_output and size and os.pread(self.log_fd, 1, size - 1) not in b"\r\n":
                os.write(self.log_fd, b"\n")
            self.last_output = output
            return True if os.splice(output, self.log_fd, min(count, self.limit - size)) else None
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close_log(self) -> None:
        if self.log_fd is not None:
            os.close(self.log_fd)
            self.log_fd = None


class KeptPrograms:
    """Everything that is kept, and the socket for the next engine.

    Attributes:
        grace_seconds: How long to wait for the next engine; 0 to keep nothing.
    """

    def __init__(self, poll: select.poll) -> None:
        self.grace_seconds = 0.0
        self._poll = poll
        self._door: socket.socket | None = None
        self._notes: dict[str, bytes] = {}
        self._programs: dict[int, KeptProgram] = {}  # by key
        self._moving: dict[int, KeptProgram] = {}  # by the descriptor of the output
        self._stuck: list[tuple[int, KeptProgram]] = []
        self._peek: PipePeeker | None = None
        self._retry_at = 0.0

    # --- what the engine says -----------------------------------------------------------------------------------------

    def handle(self, message: wire.Message, receiver: wire.MessageReceiver) -> None:
        """Execute a message of the engine."""
        match message:
            case ("listen",):
                for descriptor in receiver.take_fds():  # the socket for the next engine
                    self.close()
                    self._door = socket.socket(fileno=descriptor)
                    self._door.setblocking(False)
            case ("grace", seconds):
                self.grace_seconds = seconds
            case ("note", group, data):
                self._notes[group] = data
            case ("forget", group):  # its running programs end with the engine
                self._notes.pop(group, None)
                for key in [key for key, program in self._programs.items() if program.group == group]:
                    self.drop(key)

    # --- what happens to programs -------------------------------------------------------------------------------------

    def add(self, key: int, program: KeptProgram) -> None:
        self._programs[key] = program

    def started(self, key: int, pid: int, start_time: int, path: str) -> None:
        """Record that a program runs."""
        if program := self._programs.get(key):
            program.pid, program.start, program.path, program.began = pid, start_time, path, time.monotonic()

    def ended(self, key: int, status: int) -> None:
        if program := self._programs.get(key):
            program.status, program.ended = status, time.monotonic()

    def drop(self, key: int) -> None:
        """Forget a program: it did not start, or the engine knows its exit."""
        if program := self._programs.pop(key, None):
            program.close_log()
            for output in program.outputs:
                os.close(output)

    def keeps(self, key: int) -> bool:
        """Return whether a program outlives the engine."""
        program = self._programs.get(key)
        return program is not None and program.group in self._notes

    @property
    def count(self) -> int:
        """The number of descriptors of known programs."""
        return sum(len(program.outputs) for program in self._programs.values())

    # --- without an engine --------------------------------------------------------------------------------------------

    @property
    def is_needed(self) -> bool:
        """Whether there is a reason to wait for an engine."""
        return self._door is not None and self.grace_seconds > 0 and any(map(self.keeps, self._programs))

    def begin(self) -> None:
        """Begin to move output, and to wait for an engine."""
        assert self._door is not None
        self._poll.register(self._door, select.POLLIN)
        for key in [key for key in self._programs if not self.keeps(key)]:
            self.drop(key)
        self._peek = self._peek or _open_peek()
        for program in self._programs.values():
            for output in program.outputs:
                self._moving[output] = program
                self._poll.register(output, select.POLLIN)

    def turn(self, ready: set[int]) -> None:
        """Move the available output."""
        for descriptor in ready & self._moving.keys():
            program = self._moving[descriptor]
            if not (went_on := program.pump(descriptor, self._peek)):
                self._poll.unregister(descriptor)
                del self._moving[descriptor]
                if went_on is not None:
                    self._stuck.append((descriptor, program))
        now = time.monotonic()
        if self._stuck and now >= self._retry_at:
            stuck, self._stuck = self._stuck, []
            for descriptor, program in stuck:
                self._moving[descriptor] = program
                self._poll.register(descriptor, select.POLLIN)
            self._retry_at = now + _RETRY_SECONDS

    @property
    def look_at(self) -> float | None:
        """When to act without an event, on the monotonic clock; None for never."""
        return self._retry_at if self._stuck else None

    def accept(self, ready: set[int]) -> socket.socket | None:
        """Return the next engine if it connects. Other accounts are refused."""
        assert self._door is not None
        if self._door.fileno() not in ready:
            return None
        try:
            engine, _ = self._door.accept()
        except OSError:
            return None
        if peer(engine)[1] != os.getuid():
            engine.close()
            return None
        engine.setblocking(True)
        return engine

    def end(self) -> None:
        """Leave the output to the next engine."""
        for descriptor in self._moving:
            self._poll.unregister(descriptor)
        if self._door is not None:
            self._poll.unregister(self._door)
        self._moving.clear()
        self._stuck.clear()
        for program in self._programs.values():
            program.close_log()

    def hand_over(self, engine: socket.socket, remains: frozenset[int]) -> None:
        """Send everything that is kept, each program with the read ends of its outputs.

        Args:
            remains: Keys of ended programs that left running processes.

        Raises:
            OSError: It is gone.
        """
        wire.send(engine, wire.pack(("notes", self._notes)))
        for key, p in self._programs.items():
            facts = (p.group, p.name, p.pid, p.start, p.path, p.began, p.ended, p.status, key in remains)
            wire.send(engine, wire.pack(("program", key, *facts)), p.outputs)

    def save(self) -> None:
        """Move the rest of the pipes to the logs: all programs have ended."""
        for program in self._programs.values():
            for output in program.outputs:
                poll = select.poll()  # a shared service may hold the pipe open
                poll.register(output, select.POLLIN)
                while poll.poll(0) and program.pump(output):
                    continue

    def close(self) -> None:
        """Refuse further engines."""
        if self._door is not None:
            self._door.close()
            self._door = None


def _open_peek() -> PipePeeker | None:
    """Return a reader of pipes; None if the kernel does not allow it."""
    from katib.places.machine.processes.peek import (
        PipePeeker,  # costs time and memory, and is needed without an engine only
    )

    try:
        return PipePeeker()
    except OSError:
        return None


def peer(sock: socket.socket) -> tuple[int, int]:
    """Return process id and user id of the peer."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(data)
    return pid, uid
