"""Connection to a guard: a new one, or that of an engine that has ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from katib.places.machine.processes import proc, wire

# The parent packages are empty modules here, so that the guard loads only its own four files.
_LAUNCHER = """
import sys
for name, path in zip(("katib", "katib.places.machine.processes"), sys.argv.pop().split(chr(0x1F))):
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [path]
from katib.places.machine.processes.guard import main
main()
"""
_WAIT_SECONDS = 15.0
"""The guard gives its last processes ten seconds to end."""

_SEND_SECONDS = 10
"""The guard reads at once. If it does not, with the socket full, it is stopped or broken."""


_HAND_OVER_SECONDS = 20.0
"""A guard without an engine responds at once; otherwise it is stopped or broken."""

SOCKET_FILE = "guard.sock"


class _GuardProcess(Protocol):
    """The guard as a process: a child, or that of an engine that has ended."""

    pid: int

    def kill(self) -> None:
        """Kill it."""

    def wait(self, timeout: float) -> object:
        """Wait for its end; raise subprocess.TimeoutExpired after the timeout."""


class _ForeignProcess:
    """A process that is not a child of this one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd: int | None = os.pidfd_open(pid)

    def kill(self) -> None:
        if self._fd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)

    def wait(self, timeout: float) -> None:
        if self._fd is None:
            return
        ended = select.poll()
        ended.register(self._fd, select.POLLIN)
        if not ended.poll(1000 * timeout):
            raise subprocess.TimeoutExpired("guard", timeout)
        os.close(self._fd)
        self._fd = None


class KeptProcess(NamedTuple):
    """A program of an engine that has ended, as handed over by the guard.

    Attributes:
        start_time: Clock ticks since boot.
        began: Time of its start, on the monotonic clock of the machine.
        ended: Time of its end; 0 while it runs.
        status: Wait status; None while it runs.
        remains: Whether it ended and left running processes.
        outputs: Read ends of the pipes of its output and errors, or both; the receiver owns them.
    """

    key: int
    group: str
    name: tuple[str, ...]
    pid: int
    start_time: int
    path: str
    began: float
    ended: float
    status: int | None
    remains: bool
    outputs: tuple[int, ...]


@dataclass(slots=True)
class KeptState:
    """Everything that a guard has kept, as far as its messages were received.

    Attributes:
        engine_id: Mark of the ended engine and its programs; empty before the first message.
        last_key: The highest key of a program that it requested.
        programs: Oldest first.
        held: Descriptors that the guard holds for it.
    """

    engine_id: str = ""
    last_key: int = 0
    notes: dict[str, bytes] = field(default_factory=dict)
    programs: list[KeptProcess] = field(default_factory=list)
    held: list[int] = field(default_factory=list)

    def take(self, message: wire.Message, receiver: wire.MessageReceiver) -> None:
        """Process a message of the guard.

        Raises:
            BrokenStreamError: It is of another version.
        """
        from katib.places.machine.processes.keeping import VERSION

        match message:
            case ("hello", version, str(engine_id), int(last_key)) if version == VERSION:
                self.engine_id, self.last_key = engine_id, last_key
            case ("notes", dict(notes)):
                self.notes = notes
            case ("program", *facts):
                self.programs.append(KeptProcess(*[*facts, tuple(receiver.take_fds())]))
            case ("held",):
                self.held += receiver.take_fds()
            case _:
                raise wire.BrokenStreamError(f"a message of another version: {message[0]}")

    def close(self) -> None:
        for descriptor in (*self.held, *(output for program in self.programs for output in program.outputs)):
            os.close(descriptor)


def listening_socket(directory: Path) -> socket.socket | None:
    """Return a socket in a directory, at which the next engine finds the guard; None if it cannot be created.

    Paths of sockets must be short; the directory may be anywhere.
    """
    sock = socket.socket(socket.AF_UNIX)
    try:
        (directory / SOCKET_FILE).unlink(missing_ok=True)
        with _short(directory) as short:
            sock.bind(f"{short}/{SOCKET_FILE}")
        (directory / SOCKET_FILE).chmod(0o600)
        sock.listen(4)
    except OSError:
        sock.close()
        return None
    return sock


@contextlib.contextmanager
def _short(directory: Path) -> Iterator[str]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


class GuardConnection:
    """One guard process and the socket to it. `receive` belongs to one thread, the rest to any."""

    def __init__(self, process: _GuardProcess, sock: socket.socket) -> None:
        self._process = process
        self._sock = sock
        self._receiver = wire.MessageReceiver(sock)
        self._waiting: list[wire.Message] = []
        self._send_lock = threading.Lock()
        stat = proc.read_stat(process.pid)
        self.pid = process.pid
        self.start_time = stat.start_time if stat else 0

    @classmethod
    def open(cls, engine_id: str, start_seconds: float) -> GuardConnection:
        """Start a guard. No response is needed: requests wait in the socket until it is up.

        Args:
            engine_id: Mark of the guard and its processes.
            start_seconds: Timeout for a process to become its program.
        """
        ours, theirs = socket.socketpair()
        _limit(ours, socket.SO_SNDTIMEO, _SEND_SECONDS)
        here = Path(__file__).parent
        paths = "\x1f".join((str(here.parent), str(here)))
        arguments = [str(theirs.fileno()), str(os.getpid()), str(start_seconds), paths]
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
                [sys.executable, "-I", "-S", "-c", _LAUNCHER, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                env={proc.ENGINE_ID: engine_id},
                start_new_session=True,
            )
        return cls(process, ours)

    @classmethod
    def take_over(cls, directory: Path, pid: int) -> tuple[GuardConnection, KeptState] | None:
        """Return the connection to a guard whose engine has ended, and its hand-over; None if it hands nothing over."""
        from katib.places.machine.processes.keeping import peer

        sock = socket.socket(socket.AF_UNIX)
        _limit(sock, socket.SO_RCVTIMEO, _HAND_OVER_SECONDS)
        try:
            with _short(directory) as short:
                sock.connect(f"{short}/{SOCKET_FILE}")
            if peer(sock)[1] != os.getuid():
                raise PermissionError
            connection = cls(_ForeignProcess(pid), sock)
            handed_over = connection._receive_hand_over()
        except (OSError, wire.BrokenStreamError, ValueError, TypeError):
            sock.close()
            return None
        _limit(sock, socket.SO_RCVTIMEO, 0)
        _limit(sock, socket.SO_SNDTIMEO, _SEND_SECONDS)
        return connection, handed_over

    def _receive_hand_over(self) -> KeptState:
        estate = KeptState()
        try:
            while (messages := self._receiver.receive()) is not None:
                for number, message in enumerate(messages, start=1):
                    if message[0] == "handed-over" and estate.engine_id:
                        self._waiting = messages[number:]
                        return estate
                    estate.take(message, self._receiver)
        except BaseException:
            estate.close()
            raise
        estate.close()
        raise ConnectionResetError

    def send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Send a packed message. If the guard is gone or does not read, `receive` reports it."""
        try:
            with self._send_lock:
                wire.send(self._sock, data, fds)
        except BlockingIOError:  # a part of the message may be sent, so nothing can follow it
            self.kill()
        except OSError:
            return

    def receive(self) -> list[wire.Message] | None:
        """Wait for messages; None if the guard is gone or the connection was closed.

        Raises:
            BrokenStreamError: Malformed data arrived.
        """
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            return waiting
        try:
            return self._receiver.receive()
        except OSError:
            return None

    def close(self) -> None:
        """Close the connection, which ends the guard."""
        with contextlib.suppress(OSError):  # it is closed already
            self._sock.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        self._process.kill()

    def leave(self) -> None:
        """Close the connection, and leave the guard to the next engine."""
        self._sock.close()

    def wait(self) -> None:
        """Wait until the guard has ended; the receiving thread must have ended before."""
        for _ in range(2):
            try:
                self._process.wait(_WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._sock.close()


def _limit(sock: socket.socket, which: int, seconds: float) -> None:
    sock.setsockopt(socket.SOL_SOCKET, which, struct.pack("ll", int(seconds), 0))
