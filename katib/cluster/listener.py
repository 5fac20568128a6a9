"""The HTTP server of webhooks and monitoring: one thread for each connection, with the certificate of the moment.

The handshake runs on the connection's own thread, so a caller that does not complete it delays no other.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

MAX_BODY_BYTES = 8 * 1024 * 1024
"""An update carries the object twice, and an API server takes objects of up to 3 MiB."""

IDLE_SECONDS = 120.0
"""How long a connection may be silent. API servers close idle ones after 90 seconds themselves."""

HANDSHAKE_SECONDS = 10.0
DRAIN_SECONDS = 5.0

TEXT = "text/plain; charset=utf-8"

Answer = tuple[int, str, bytes]
"""Status, content type and body."""

_LOG = logging.getLogger(__name__)


class Listener(ThreadingHTTPServer):
    """Listens from construction on, answers from `start` until `close`; knows which connections are open.

    Args:
        host: Address to listen on; empty for all addresses of both families.
        port: Port; 0 takes a free one.
        method: The method that requests have.
        answer: Takes path, without a query, and body of a request.
        context: Returns what to shake hands with now, None to turn the connection away; without it HTTP is plain.
        name: Name of the thread that accepts connections.

    Raises:
        OSError: The port cannot be listened on.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 512
    allow_reuse_port = False

    def __init__(
        self,
        host: str,
        port: int,
        *,
        method: str,
        answer: Callable[[str, bytes], Answer],
        context: Callable[[], ssl.SSLContext | None] | None = None,
        name: str,
    ) -> None:
        self.method, self.answer = method, answer
        self._context = context
        self._open: dict[socket.socket, bool] = {}
        self._changed = threading.Condition()
        self._draining = False
        self._is_any = not host and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if self._is_any or ":" in host else socket.AF_INET
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), name=name, daemon=True)
        super().__init__((host, port), _Connection)

    def server_bind(self) -> None:
        """Bind, on every address to both families; unlike the base class without asking a name server for our name."""
        if self._is_any:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "katib", self.server_address[1]

    def start(self) -> None:
        """Answer from now on. Connections made before have waited."""
        self._thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Shake hands, then serve the connection until either side ends it."""
        connection = self._shake_hands(request)
        if connection is None:
            return
        with self._changed:
            self._open[connection] = False
        try:
            super().process_request_thread(connection, client_address)
        finally:
            with self._changed:
                del self._open[connection]
                self._changed.notify_all()

    def _shake_hands(self, request: socket.socket) -> socket.socket | None:
        if self._context is None:
            return request
        context = self._context()
        if context is None:
            self.shutdown_request(request)
            return None
        request.settimeout(HANDSHAKE_SECONDS)
        try:
            return context.wrap_socket(request, server_side=True)
        except (OSError, ValueError) as error:  # a probe, or a caller who does not trust the certificate
            _LOG.debug("handshake failed: %s", error)
            request.close()
            return None

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's
        """Log what went wrong with a connection; it is closed, the others continue."""
        _LOG.debug("connection broke", exc_info=True)

    def set_busy(self, connection: socket.socket, *, busy: bool) -> bool:
        """Note whether a connection has a request under way; return whether it may go on after it."""
        with self._changed:
            self._open[connection] = busy
            self._changed.notify_all()
            return not self._draining

    def close(self) -> None:
        """Stop listening, let requests under way finish for a few seconds, and close all connections."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()
        with self._changed:
            self._draining = True
            self._changed.wait_for(lambda: not any(self._open.values()), DRAIN_SECONDS)
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)  # which wakes the thread that reads
            self._changed.wait_for(lambda: not self._open, DRAIN_SECONDS)


class _Connection(BaseHTTPRequestHandler):
    """Requests of one connection, one after the other."""

    server: Listener
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    wbufsize = -1
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        if not self.server.set_busy(self.connection, busy=True):
            self.close_connection = True
        try:
            body = self._body()
            if body is not None:
                self._send(*self._answer(body))
        finally:
            self.wfile.flush()
            if not self.server.set_busy(self.connection, busy=False):
                self.close_connection = True

    do_GET = do_POST = _serve  # noqa: N815 - names of http.server

    def _answer(self, body: bytes) -> Answer:
        path = self.path.partition("?")[0]
        try:
            return self.server.answer(path, body)
        except Exception:  # noqa: BLE001 - whatever it is, other requests are answered
            _LOG.exception("request failed", extra={"path": path})
            return HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, b"it failed; the log has the cause\n"

    def _body(self) -> bytes | None:
        """Return the body; None when there is none to read, which is then answered and ends the connection."""
        length = self.headers.get("Content-Length", "0" if self.command == "GET" else "")
        if self.command != self.server.method:
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)
        elif not length.isdecimal():
            self._refuse(HTTPStatus.LENGTH_REQUIRED)
        elif int(length) > MAX_BODY_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            body = self.rfile.read(int(length))
            if len(body) == int(length):
                return body
            self.close_connection = True
        return None

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self._send(status, TEXT, status.phrase.encode())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Name no versions."""
        return "katib"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name in the base class
        """Log each request at the level of debugging."""
        _LOG.debug("request: %s", format % args)
