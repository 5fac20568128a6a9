"""Connections of the HTTPS server: one thread for each, with the certificate of the moment it was opened.

The handshake runs on the connection's own thread, so a caller that does not complete it delays no other.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from katib.errors import InvalidError

MAX_BODY_BYTES = 8 * 1024 * 1024
"""An update carries the object twice, and an API server takes objects of up to 3 MiB."""

IDLE_SECONDS = 120.0
"""How long a connection may be silent. API servers close idle ones after 90 seconds themselves."""

HANDSHAKE_SECONDS = 10.0

_LOG = logging.getLogger(__name__)


class Listener(ThreadingHTTPServer):
    """Accepts connections; knows those that are open, so that it can close them.

    Args:
        address: Host and port.
        answer: Takes path and body of a request and returns the body of the answer, None for an unknown path. An
            InvalidError is the caller's mistake.
        context: Returns what to shake hands with now; None turns the connection away.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 512
    allow_reuse_port = False

    def __init__(
        self,
        address: tuple[str, int],
        *,
        answer: Callable[[str, bytes], bytes | None],
        context: Callable[[], ssl.SSLContext | None],
    ) -> None:
        self.answer = answer
        self._context = context
        self._open: dict[socket.socket, bool] = {}
        self._changed = threading.Condition()
        self._draining = False
        self._is_any = not address[0] and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if self._is_any or ":" in address[0] else socket.AF_INET
        super().__init__(address, _Connection)

    def server_bind(self) -> None:
        """Bind, on every address to both families; unlike the base class without asking a name server for our name."""
        if self._is_any:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "katib", self.server_address[1]

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Shake hands, then serve the connection until either side ends it."""
        context = self._context()
        if context is None:
            self.shutdown_request(request)
            return
        request.settimeout(HANDSHAKE_SECONDS)
        try:
            secured = context.wrap_socket(request, server_side=True)
        except (OSError, ValueError) as error:  # a probe, or a caller who does not trust the certificate
            _LOG.debug("admission handshake failed: %s", error)
            request.close()
            return
        with self._changed:
            self._open[secured] = False
        try:
            super().process_request_thread(secured, client_address)
        finally:
            with self._changed:
                del self._open[secured]
                self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's
        """Log what went wrong with a connection; it is closed, the others continue."""
        _LOG.debug("admission connection broke", exc_info=True)

    def set_busy(self, connection: socket.socket, *, busy: bool) -> bool:
        """Note whether a connection has a request under way; return whether it may go on after it."""
        with self._changed:
            self._open[connection] = busy
            self._changed.notify_all()
            return not self._draining

    def drain(self, seconds: float) -> None:
        """Stop listening, wait for requests under way, then close what is open."""
        self.server_close()
        with self._changed:
            self._draining = True
            self._changed.wait_for(lambda: not any(self._open.values()), seconds)
            connections = list(self._open)
            for connection in connections:
                _hang_up(connection)
            self._changed.wait_for(lambda: not self._open, seconds)


def _hang_up(connection: socket.socket) -> None:
    """End both directions, which wakes the thread that reads."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class _Connection(BaseHTTPRequestHandler):
    """Requests of one connection, one after the other."""

    server: Listener
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Answer one review."""
        if not self.server.set_busy(self.connection, busy=True):
            self.close_connection = True
        try:
            self._answer()
        finally:
            self.wfile.flush()
            if not self.server.set_busy(self.connection, busy=False):
                self.close_connection = True

    def _answer(self) -> None:
        body = self._body()
        if body is None:
            return
        try:
            answer = self.server.answer(self.path, body)
        except InvalidError as error:
            self._send(HTTPStatus.BAD_REQUEST, str(error).encode(), "text/plain; charset=utf-8")
            return
        if answer is None:
            self._send(HTTPStatus.NOT_FOUND, b"no webhook has this path", "text/plain; charset=utf-8")
            return
        self._send(HTTPStatus.OK, answer, "application/json")

    def _body(self) -> bytes | None:
        """Return the body; None when there is none to read, which is then answered and ends the connection."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
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
        self._send(status, status.phrase.encode(), "text/plain; charset=utf-8")

    def _send(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
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
        """Log requests for those who want to see each."""
        _LOG.debug("admission request: %s", format % args)
