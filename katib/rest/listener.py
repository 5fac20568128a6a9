"""Listening: one uvicorn server on a thread of its own, ended in an orderly way."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn

from katib.errors import FieldError, InvalidError

_DRAIN_SECONDS = 5
_CUT_SECONDS = 0.05
_IDLE_SECONDS = 75
"""Longer than the usual clients keep a connection that they do not use, so that they close it."""


class Listener:
    """Serves an application from construction on until closed.

    Args:
        app: An ASGI application.
        sockets: Where it listens; closed with it.
        name: Of its thread.
        certificate: Files with the certificate to show and its key; None: no TLS.
    """

    def __init__(
        self, app: Any, sockets: Sequence[socket.socket], name: str, certificate: tuple[Path, Path] | None = None
    ) -> None:
        self._sockets = sockets
        chain, key = certificate or (None, None)
        self._server = _Server(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                lifespan="off",
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=_DRAIN_SECONDS,
                timeout_keep_alive=_IDLE_SECONDS,
                ssl_certfile=chain,
                ssl_keyfile=key,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": list(sockets)}, name=name, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Let requests finish for a few seconds, and stop listening. Closing twice is fine."""
        self._server.should_exit = True
        self._thread.join()
        for listening in self._sockets:
            listening.close()


class _Server(uvicorn.Server):
    """Stops without waiting for clients that keep a connection which they do not use.

    By TLS, a connection is closed when its client agrees, and an idle client does not look.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        cutting = asyncio.create_task(self._cut_idle())
        try:
            await super().shutdown(sockets)
        finally:
            cutting.cancel()

    async def _cut_idle(self) -> None:
        while True:
            for connection in list(self.server_state.connections):
                cycle, transport = getattr(connection, "cycle", None), connection.transport
                if (cycle is None or cycle.response_complete) and not transport.get_write_buffer_size():
                    transport.abort()
            await asyncio.sleep(_CUT_SECONDS)


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
