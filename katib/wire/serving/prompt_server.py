"""A uvicorn server that limits its connections, their number and the time that each may take to send a request.

Laws:
- Descriptors never run out: at the limit, or when the system gives none, the connection that has waited longest for its
  own client (a handshake, a header, a body, the next request) is closed. Others are never closed for a new one.
- A client that sends a part of a request and stops is cut after a time limit.
- A client causes at most one log line per cause and minute, and no traceback.
- Shutdown does not wait for idle connections. With TLS, one closes only when its client agrees, and an idle client does
  not respond.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import h11
import uvicorn
from typing_extensions import override
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

HANDSHAKE_SECONDS = 20.0
HEADER_SECONDS = 20.0
BODY_SECONDS = 120.0
"""For at most a few megabytes; a total, because a byte now and then is no progress."""

_LEAST = 16
_MOST = 512
_SHARE = 8
"""Divisor of the descriptor limit of this process, which has several servers and needs some for trials."""

_ACCEPTED_AT_ONCE = 4
"""Connections closed to make room are only released after these."""

_PAUSE_SECONDS = 1.0
_QUIET_SECONDS = 60.0
_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

_log = logging.getLogger(__name__)


class _Quiet(logging.Filter):
    """Passes each warning of a logger at most once a minute, whatever its arguments; a client can cause any number."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[object, float] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            return True
        now = time.monotonic()
        if now - self._passed.get(record.msg, -_QUIET_SECONDS) < _QUIET_SECONDS:
            return False
        self._passed[record.msg] = now
        return True


for _logger in (_log, logging.getLogger("uvicorn.error")):
    _logger.addFilter(_Quiet())


def most_connections() -> int:
    """Return the maximum number of connections for a server of this process."""
    return max(_LEAST, min(_MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE))


class BoundedProtocol(H11Protocol):
    """A connection that is cut if its client takes too long.

    Attributes:
        waits_since: Time since which it waits for its client, by the loop's clock; None while a request is answered.
    """

    waits_since: float | None = None
    _limit: asyncio.TimerHandle | None = None
    _phase: object = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait("header", HEADER_SECONDS)

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look(is_idle=self.cycle.response_complete and not self.conn.trailing_data[0])

    @override
    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._wait(None)
        super().handle_websocket_upgrade(event)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(None)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection at once."""
        self.connections.discard(self)
        self.transport.abort()

    def _look(self, *, is_idle: bool = False) -> None:
        """Update the part of a request that the client has to send next."""
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            self._wait(None)
        elif is_idle:  # the server has a limit for kept connections
            self._wait("next")
        elif self._is_between_requests():
            self._wait("header", HEADER_SECONDS)
        elif self.cycle.more_body:
            self._wait(self.cycle, BODY_SECONDS)
        else:
            self._wait(None)

    def _is_between_requests(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None until the first request
        return cycle is None or cycle.response_complete

    def _wait(self, phase: object, limit_seconds: float | None = None) -> None:
        if phase is self._phase:
            return
        self._phase = phase
        self.waits_since = None if phase is None else self.loop.time()
        if self._limit is not None:
            self._limit.cancel()
        self._limit = (
            None if limit_seconds is None else self.loop.call_later(limit_seconds, self._give_up, limit_seconds)
        )

    def _give_up(self, seconds: float) -> None:
        _log.warning("A client was cut that sent no whole request in %.0f s", seconds)
        if not self.transport.is_closing():
            if self._is_between_requests() or not self.cycle.response_started:
                self.transport.write(_TIMEOUT)
            self.transport.close()


class Listener:
    """Accepts the connections of one socket. Has the methods of `asyncio.Server` that uvicorn calls."""

    def __init__(
        self,
        listening: socket.socket,
        state: ServerState,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = listening
        self._state = state
        self._make_protocol = make_protocol
        self._tls = tls
        self._most = most_connections()
        self._starting: dict[asyncio.Task[Any], float] = {}
        self._pause: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        """Stop accepting, and cancel handshakes."""
        self._loop.remove_reader(self._socket)
        if self._pause is not None:
            self._pause.cancel()
        for task in self._starting:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return at once: there is nothing to wait for."""

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.warning("No connection can be accepted: %s", error.strerror)
                if not self._make_room():
                    self._rest()
                return
            if len(self._state.connections) + len(self._starting) >= self._most:
                _log.warning("More than %d clients at once: those that send no whole request are cut", self._most)
                if not self._make_room():
                    connection.close()
                    continue
            connection.setblocking(False)
            self._start(connection)

    def _start(self, connection: socket.socket) -> None:
        limit = HANDSHAKE_SECONDS if self._tls is not None else None
        starting = self._loop.connect_accepted_socket(
            self._make_protocol, connection, ssl=self._tls, ssl_handshake_timeout=limit
        )
        task = self._loop.create_task(starting)
        self._starting[task] = self._loop.time()
        task.add_done_callback(self._started)

    def _started(self, task: asyncio.Task[Any]) -> None:
        self._starting.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.info("A connection did not begin: %s", error)

    def _make_room(self) -> bool:
        """Cut the connection that has waited longest for its client; return whether there was one."""
        waiting: list[tuple[float, Callable[[], object]]] = [
            (since, connection.abort)  # type: ignore[union-attr]
            for connection in self._state.connections
            if (since := getattr(connection, "waits_since", None)) is not None
        ]
        waiting += [(since, task.cancel) for task, since in self._starting.items() if not task.cancelling()]
        if not waiting:
            return False
        min(waiting, key=lambda one: one[0])[1]()
        return True

    def _rest(self) -> None:
        """Let the system recover before the next attempt."""
        self._loop.remove_reader(self._socket)
        self._pause = self._loop.call_later(_PAUSE_SECONDS, self._loop.add_reader, self._socket, self._accept)


_CUT_SECONDS = 0.05


class PromptServer(uvicorn.Server):
    """Cuts idle connections during shutdown; running requests finish, or are cut at the time limit."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        make = partial(
            BoundedProtocol, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        self.servers = [Listener(one, self.server_state, make, self.config.ssl) for one in sockets or ()]  # type: ignore[misc]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, let requests finish, and close all connections."""
        cutting = asyncio.create_task(self._cut_idle())
        try:
            await super().shutdown(sockets)
        finally:
            cutting.cancel()
            for connection in list(self.server_state.connections):
                connection.transport.abort()

    async def _cut_idle(self) -> None:
        while True:
            for connection in list(self.server_state.connections):
                cycle, transport = getattr(connection, "cycle", None), connection.transport
                if (cycle is None or cycle.response_complete) and not transport.get_write_buffer_size():
                    transport.abort()
            await asyncio.sleep(_CUT_SECONDS)
