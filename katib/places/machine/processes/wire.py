"""Messages between the engine and its guard: length, marshaled tuple, and file descriptors.

Both ends belong to one account, so `marshal` is safe, and it costs no import. A guard may be older than its engine, and
run another version of Python: messages have a format that all of them read. Standard library only.
"""

from __future__ import annotations

import array
import marshal
import socket
import struct
from collections import deque
from collections.abc import Sequence

TYPE_CHECKING = False  # the guard starts with every run, and `typing` is a third of what it imports
if TYPE_CHECKING:
    from typing import Any, TypeAlias

Message: TypeAlias = "tuple[Any, ...]"

LARGEST_BYTES = 1 << 26
"""Far above the kernel's limit of arguments and environment; a longer message means that the stream is broken."""

_FORM = 4
"""Version of `marshal`'s format, since Python 3.4."""

_HEADER = struct.Struct("!I")
_CHUNK = 1 << 16
_MAX_FDS = 64
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class BrokenStreamError(Exception):
    """Malformed data arrived."""


def pack(message: Message) -> bytes:
    body = marshal.dumps(message, _FORM)
    return _HEADER.pack(len(body)) + body


def send(sock: socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
    """Send a packed message completely. The descriptors are duplicated to the other side.

    Raises:
        OSError: The other side is gone, or does not read within the socket's timeout.
    """
    if fds:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        data = data[sock.sendmsg([data], rights) :]
    sock.sendall(data)


class MessageReceiver:
    """Reads messages from a stream socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()
        self._fds: deque[list[int]] = deque()

    def receive(self) -> list[Message] | None:
        """Wait for data and return the complete messages; None at the end of the stream.

        Raises:
            BrokenStreamError: Malformed data arrived.
        """
        room = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(_CHUNK, room, _CLOSE_ON_EXEC)
        except ConnectionError:
            return None
        rights = [p for level, kind, p in ancillary if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)]
        if rights or flags & socket.MSG_CTRUNC:
            fds = array.array("i")
            for payload in rights:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
            self._fds.append(fds.tolist())
        if not data:
            return None
        self._buffer += data
        messages: list[Message] = []
        while len(self._buffer) >= _HEADER.size:
            length = _HEADER.unpack_from(self._buffer)[0]
            if length > LARGEST_BYTES:
                raise BrokenStreamError(f"a message of {length} bytes")
            end = _HEADER.size + length
            if len(self._buffer) < end:
                break
            try:
                message = marshal.loads(bytes(self._buffer[_HEADER.size : end]))  # noqa: S302 - see the module docstring
            except (ValueError, EOFError, TypeError) as error:
                raise BrokenStreamError(str(error)) from error
            if not isinstance(message, tuple):
                raise BrokenStreamError(f"a {type(message).__name__} instead of a tuple")
            messages.append(message)
            del self._buffer[:end]
        return messages

    def take_fds(self) -> list[int]:
        """Return the descriptors of the oldest message with any not returned yet; the caller owns them.

        They are fewer than were sent if this process has no room for them. (One read never spans two messages with
        descriptors: the kernel ends it after the first.)
        """
        return self._fds.popleft()
