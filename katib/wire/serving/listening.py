"""Listening sockets, and a uvicorn server on a thread of its own, which imports its dependencies."""

from __future__ import annotations

import errno
import select
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from katib.errors import FieldError, InvalidError

if TYPE_CHECKING:
    import uvicorn

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
"""An ASGI application."""

Tls = Callable[[], ssl.SSLContext | None]
"""Returns the current TLS context; None rejects the connection."""

DRAIN_SECONDS = 5
"""Time for running requests to finish when a server is closed."""

BACKLOG = 64
"""Connections waiting to be accepted: few, since nothing else limits their descriptors."""

_SOCKET_BYTES = 64 << 10
"""Maximum size of a received WebSocket message; clients that watch send none."""

_IDLE_SECONDS = 120
"""Longer than clients keep an unused connection, so that they close it: those in Go keep it for 90 s."""


class ServerThread:
    """Answers at sockets from construction until closed; connections made before it has started wait.

    Args:
        at_once: Whether to start now; else at the first connection, for a server that is rarely used.
        tls: Returns the TLS context, called at each handshake; None for no TLS.
        has_sockets: Whether the application accepts WebSockets.
    """

    def __init__(
        self,
        app: App,
        sockets: Sequence[socket.socket],
        name: str,
        *,
        at_once: bool = True,
        tls: Tls | None = None,
        has_sockets: bool = False,
    ) -> None:
        self._app = app
        self._has_sockets = has_sockets
        self._tls = tls
        self._sockets = list(sockets)
        self._lock = threading.Lock()
        self._server: uvicorn.Server | None = None
        self._closed = False
        self._at_once = at_once
        self._woken, self._wakes = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let requests finish for a few seconds, and stop listening. Idempotent."""
        with self._lock:
            self._closed = True
            if self._server is not None:
                self._server.should_exit = True
            if self._wakes.fileno() >= 0:
                self._wakes.send(b"x")
        self._thread.join()
        for one in (*self._sockets, self._woken, self._wakes):
            one.close()

    def _run(self) -> None:
        if not self._at_once:
            select.select([*self._sockets, self._woken], (), ())
            if self._closed:
                return
        import uvicorn

        from katib.wire.serving.prompt_server import PromptServer

        config = uvicorn.Config(
            self._app,
            log_config=None,
            log_level="warning",
            access_log=False,
            interface="asgi3",
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            ws="auto" if self._has_sockets else "none",
            ws_max_size=_SOCKET_BYTES,
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            timeout_keep_alive=_IDLE_SECONDS,
        )
        config.load()
        config.ssl = self._tls and _asking(self._tls)
        with self._lock:
            if self._closed:
                return
            self._server = PromptServer(config)
        self._server.run(sockets=self._sockets)


def _asking(tls: Tls) -> ssl.SSLContext:
    """Return a TLS context that selects the current context at each handshake, even without a server name."""

    def choose(connection: ssl.SSLObject, *_: object) -> int | None:
        context = tls()
        if context is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = context
        return None

    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    asking.sni_callback = choose
    return asking


def tls_of_files(certificate: Path, key: Path) -> Tls:
    """Return TLS with a certificate from files, which are reread when they change."""
    shown: ssl.SSLContext | None = None
    read: list[int] = []

    def current() -> ssl.SSLContext | None:
        nonlocal shown, read
        with suppress(OSError):  # files being replaced: the old certificate is presented once more
            if (found := [path.stat().st_mtime_ns for path in (certificate, key)]) != read:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate, key)
                shown, read = context, found
        return shown

    return current


def open_socket(host: str | None, port: int) -> socket.socket:
    """Return a listening socket; without a host, at all addresses of both families.

    Raises:
        OSError: The port is in use or not permitted, or the host is unknown.
    """
    both = host is None and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_UNSPEC
    found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    listening = socket.create_server(address[:2], family=family, backlog=BACKLOG, dualstack_ipv6=both)
    # Without it a body waits until its header is acknowledged, which the peer delays by 40 ms. Connections inherit it;
    # asyncio sets it only on sockets that name their protocol.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, as `open_socket` does, for a command with the options `--host` and `--port`.

    Raises:
        InvalidError: The port is in use or not permitted, or the host is unknown.
    """
    try:
        return open_socket(host, port)
    except OSError as error:
        raise InvalidError([_listen_error(host, port, error)]) from error


def _listen_error(host: str, port: int, error: OSError) -> FieldError:
    if error.errno == errno.EADDRINUSE:
        return FieldError(
            "--port",
            f"port {port} on {host} is in use by another program",
            "stop it, or choose another port, such as --port 0 for a free one",
            "port-in-use",
        )
    if error.errno == errno.EACCES:
        return FieldError("--port", f"port {port} needs privileges", "choose one above 1023", "port-privileged")
    return FieldError("--host", f"cannot listen on {host}: {error.strerror}", "use 127.0.0.1", "host-unknown")
