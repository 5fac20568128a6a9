"""Messages between the engine and its guard: length, marshaled tuple, file descriptors beside it.

Both ends run the same interpreter and files, one the parent of the other, so `marshal` is safe and costs no import.
Standard library only.
"""

from __future__ import annotations

import array
import marshal
import socket
import struct
from collections import deque
from typing import Any

Message = tuple[Any, ...]

_HEADER = struct.Struct("!I")
_CHUNK = 1 << 16
_MAX_FDS = 64
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def send(sock: socket.socket, message: Message, fds: tuple[int, ...] = ()) -> None:
    """Send a message whole. The descriptors are duplicated to the other side.

    Raises:
        OSError: The other side is gone.
    """
    body = marshal.dumps(message)
    data = _HEADER.pack(len(body)) + body
    if fds:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        data = data[sock.sendmsg([data], rights) :]
    sock.sendall(data)


class Receiver:
    """Reads messages from a stream socket. Descriptors arrive in the order in which they were sent."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()
        self._fds: deque[int] = deque()

    def receive(self) -> list[Message] | None:
        """Wait for data and return the messages that are complete; None at the end of the stream."""
        room = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
        try:
            data, ancillary, _, _ = self._sock.recvmsg(_CHUNK, room, _CLOSE_ON_EXEC)
        except ConnectionError:
            return None
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._keep(payload)
        if not data:
            return None
        self._buffer += data
        return self._complete()

    def take_fds(self, count: int) -> list[int]:
        """Return the next descriptors; the caller owns them."""
        return [self._fds.popleft() for _ in range(count)]

    def _keep(self, payload: bytes) -> None:
        fds = array.array("i")
        fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        self._fds.extend(fds)

    def _complete(self) -> list[Message]:
        messages = []
        while len(self._buffer) >= _HEADER.size:
            end = _HEADER.size + _HEADER.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                break
            messages.append(marshal.loads(bytes(self._buffer[_HEADER.size : end])))  # noqa: S302 - see the module docstring
            del self._buffer[:end]
        return messages
