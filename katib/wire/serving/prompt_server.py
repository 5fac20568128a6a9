"""A uvicorn server with limits that shuts down without waiting for clients with idle connections.

With TLS, a connection closes only when its client agrees, and an idle client does not respond.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from functools import partial

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from katib.wire.serving.bounded import BoundedProtocol, Listener

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
