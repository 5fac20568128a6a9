"""What stands between client and server: a proxy that loses answers, one that is slow, a gateway without routes."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum

_EXECUTE = b"E\x00\x00\x00\x09"  # PostgreSQL runs with this message what it has read before


class Cut(Enum):
    """When to break the connection of the next commit."""

    BEFORE = "before the server hears of it"
    AFTER = "after the server has done it"


class LossyProxy:
    """Passes bytes to a server; once `cut` is set, breaks the next commit and then passes bytes again.

    Attributes:
        cut: What to do with the next commit.
        refusing: Whether new connections are closed at once.
        commits_cut: How many were broken.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut: Cut | None = None
        self.refusing = False
        self.refuse_after_cut = False
        self.commits_cut = 0
        self._clients: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def hang_up(self) -> None:
        """Break all connections, and refuse new ones."""
        self.refusing = True
        for client in self._clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.refusing:
                    client.close()
                    continue
                self._clients.append(client)
                server = socket.create_connection(("127.0.0.1", self._target))
                for side in (client, server):
                    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                dropped = threading.Event()
                threading.Thread(target=self._upstream, args=(client, server, dropped), daemon=True).start()
                threading.Thread(target=self._downstream, args=(server, client, dropped), daemon=True).start()

    def _upstream(self, client: socket.socket, server: socket.socket, dropped: threading.Event) -> None:
        committing = False
        with suppress(OSError):
            while data := client.recv(1 << 16):
                committing |= self.cut is not None and b"commit" in data.lower()
                runs_now = _EXECUTE in data or b"\x03commit" in data.lower()
                if committing and runs_now:
                    self._break(server, data, dropped)
                    break
                server.sendall(data)
        for side in (client, server):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()

    def _break(self, server: socket.socket, data: bytes, dropped: threading.Event) -> None:
        cut, self.cut = self.cut, None
        self.refusing = self.refuse_after_cut
        if cut is Cut.AFTER:
            dropped.clear()
            self._waiting = dropped
            server.sendall(data)
            dropped.wait(60)
        self.commits_cut += 1

    _waiting: threading.Event | None = None

    def _downstream(self, server: socket.socket, client: socket.socket, dropped: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if self._waiting is dropped:
                    dropped.set()
                    return
                client.sendall(data)


@contextmanager
def lossy(port: int) -> Iterator[LossyProxy]:
    """Open a way to a server of this machine that can be broken."""
    proxy = LossyProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()


@contextmanager
def held_up(path: str, until: threading.Event) -> Iterator[str]:
    """Open a way to a server on a Unix socket, on which nothing passes until an event; give its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_hold_up, args=(listening, path, until), daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        until.set()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def _hold_up(listening: socket.socket, path: str, until: threading.Event) -> None:
    with suppress(OSError), ExitStack() as stack:
        while True:
            client = stack.enter_context(listening.accept()[0])
            until.wait(60)
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.connect(path)
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


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
