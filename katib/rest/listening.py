"""Listening: sockets, and a uvicorn server on a thread of its own. What it takes is imported on that thread."""

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
"""An application of ASGI."""

_DRAIN_SECONDS = 5
_IDLE_SECONDS = 75
"""Longer than the usual clients keep a connection that they do not use, so that they close it."""


class ServerThread:
    """Answers at sockets from construction on until closed; connections that are made before it has begun wait.

    Args:
        app: What answers.
        sockets: They listen already, and are closed with the server.
        name: Of the thread.
        at_once: Whether to begin now; else with the first connection, as where most likely there is none.
        certificate: Files with the certificate to show and its key, read again when they change; None: no TLS.
    """

    def __init__(
        self,
        app: App,
        sockets: Sequence[socket.socket],
        name: str,
        *,
        at_once: bool = True,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        self._app = app
        self._certificate = certificate
        self._sockets = list(sockets)
        self._lock = threading.Lock()
        self._server: uvicorn.Server | None = None
        self._closed = False
        self._at_once = at_once
        self._woken, self._wakes = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let requests finish for a few seconds, and stop listening. Closing twice is fine."""
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

        from katib.rest.prompt_server import PromptServer

        config = uvicorn.Config(
            self._app,
            log_level="warning",
            access_log=False,
            interface="asgi3",
            lifespan="off",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_DRAIN_SECONDS,
            timeout_keep_alive=_IDLE_SECONDS,
            ssl_certfile=self._certificate and self._certificate[0],
            ssl_keyfile=self._certificate and self._certificate[1],
        )
        config.load()
        if config.ssl is not None and self._certificate is not None:
            _follow(config.ssl, *self._certificate)
        with self._lock:
            if self._closed:
                return
            self._server = PromptServer(config)
        self._server.run(sockets=self._sockets)


def _follow(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Read a certificate and its key again, before the next handshake but one, when they have changed."""

    def changes() -> list[int]:
        return [path.stat().st_mtime_ns for path in (certificate, key)]

    shown = changes()

    def look(*_: object) -> None:
        nonlocal shown
        with suppress(OSError):  # files that are being replaced: the old ones are shown once more
            if (found := changes()) != shown:
                context.load_cert_chain(certificate, key)
                shown = found

    context.sni_callback = look


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        InvalidError: The port is in use or not ours to take, or the host is unknown.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family, backlog=512)
    except OSError as error:
        raise InvalidError([_listen_error(host, port, error)]) from error
    # Without it a body waits until its header is acknowledged, which the other side delays by 40 ms. Connections
    # inherit it; asyncio sets it only on sockets that name their protocol.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


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
