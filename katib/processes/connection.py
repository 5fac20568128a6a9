"""Starts a guard and speaks with it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from katib.processes import proc, wire

# The parent packages are empty shells here, so that the guard loads its own three files and nothing else of ours.
_LAUNCHER = """
import sys
for name, path in zip(("katib", "katib.processes"), sys.argv.pop(3).split(chr(0x1F))):
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [path]
from katib.processes.guard import main
main()
"""
_WAIT_SECONDS = 15.0
"""The guard gives its last processes ten seconds to go."""


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
        self.opened_at = time.monotonic()

    @classmethod
    def open(cls, engine_id: str) -> GuardConnection:
        """Start a guard. It needs no answer: requests wait in the socket until it is up."""
        ours, theirs = socket.socketpair()
        here = Path(__file__).parent
        paths = "\x1f".join((str(here.parent), str(here)))
        command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(theirs.fileno()), str(os.getpid()), paths]
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                env={proc.ENGINE_ID: engine_id},
                start_new_session=True,
            )
        return cls(process, ours)

    def send(self, message: wire.Message, fds: tuple[int, ...] = ()) -> bool:
        """Send a message; False when the guard is gone, which `receive` reports too."""
        try:
            with self._send_lock:
                wire.send(self._sock, message, fds)
        except OSError:
            return False
        return True

    def receive(self) -> list[wire.Message] | None:
        """Wait for messages; None when the guard is gone or the connection was closed."""
        try:
            return self._receiver.receive()
        except OSError:
            return None

    def close(self) -> None:
        """End the conversation, which ends the guard."""
        with contextlib.suppress(OSError):  # it is gone already
            self._sock.shutdown(socket.SHUT_RDWR)

    def wait(self) -> None:
        """Wait until the guard has ended; the thread that receives must be through."""
        try:
            self._process.wait(_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._sock.close()
