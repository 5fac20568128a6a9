"""A gateway that knows no route: speaks HTTP/2 (RFC 9113), and answers every request with 404."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PREFACE_BYTES = 24
_HEADERS, _SETTINGS, _PING = 1, 4, 6
_ACK, _END_OF_STREAM_AND_HEADERS = 0x1, 0x5
_STATUS_404 = b"\x8d"  # an entry of HPACK's static table (RFC 7541, appendix A)


@contextmanager
def gateway_without_routes() -> Iterator[str]:
    """Serve on loopback; give the address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=(listening,), daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def _accept(listening: socket.socket) -> None:
    with suppress(OSError):  # the end
        while True:
            client, _ = listening.accept()
            threading.Thread(target=_answer, args=(client,), daemon=True).start()


def _answer(client: socket.socket) -> None:
    with client, client.makefile("rb") as requests, suppress(OSError, struct.error):
        requests.read(_PREFACE_BYTES)
        client.sendall(_frame(_SETTINGS))
        while True:
            high, low, kind, flags, stream = struct.unpack(">BHBBI", requests.read(9))
            payload = requests.read(high << 16 | low)
            if kind == _HEADERS:
                client.sendall(_frame(_HEADERS, _END_OF_STREAM_AND_HEADERS, stream, _STATUS_404))
            elif kind in (_SETTINGS, _PING) and not flags & _ACK:
                client.sendall(_frame(kind, _ACK, payload=payload if kind == _PING else b""))


def _frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">BHBBI", len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload
