"""Starts a guard and speaks with it."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from katib.local.processes import proc, wire

# The parent packages are empty shells here, so that the guard loads its own three files and nothing else of ours.
_LAUNCHER = """
import sys
for name, path in zip(("katib", "katib.local.processes"), sys.argv.pop().split(chr(0x1F))):
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [path]
from katib.local.processes.guard import main
main()
"""
_WAIT_SECONDS = 15.0
"""The guard gives its last processes ten seconds to go."""

_SEND_SECONDS = 10
"""The guard reads at once. One that does not, with the socket full, is stopped or broken."""


class GuardConnection:
    """One guard process and the socket to it. `receive` belongs to one thread, the rest to any."""

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket) -> None:
        self._process = process
        self._sock = sock
        self._receiver = wire.Receiver(sock)
        self._send_lock = threading.Lock()
        stat = proc.read_stat(process.pid)
        self.pid = process.pid
        self.start_time = stat.start_time if stat else 0

    @classmethod
    def open(cls, engine_id: str, start_seconds: float) -> GuardConnection:
        """Start a guard. It needs no answer: requests wait in the socket until it is up.

        Args:
            engine_id: Marks the guard and what it starts.
            start_seconds: How long a process may take to become its program.
        """
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_SECONDS, 0))
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

    def send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """Send a packed message. When the guard is gone or reads nothing, `receive` says so."""
        try:
            with self._send_lock:
                wire.send(self._sock, data, fds)
        except BlockingIOError:  # a part of the message may be on its way, so nothing can follow it
            self.kill()
        except OSError:
            return

    def receive(self) -> list[wire.Message] | None:
        """Wait for messages; None when the guard is gone or the connection was closed.

        Raises:
            BrokenStreamError: What arrived is not a message.
        """
        try:
            return self._receiver.receive()
        except OSError:
            return None

    def close(self) -> None:
        """End the conversation, which ends the guard."""
        with contextlib.suppress(OSError):  # it is gone already
            self._sock.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """End the guard by force, and with it what it started."""
        self._process.kill()

    def wait(self) -> None:
        """Wait until the guard has ended; the thread that receives must be through."""
        for _ in range(2):
            try:
                self._process.wait(_WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
        self._sock.close()
