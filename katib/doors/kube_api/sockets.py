"""Lines of a stream as text messages of a WebSocket, as an API server sends the changes of a watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.websockets import WebSocket, WebSocketDisconnect

from katib.doors.rest.guard import TOKEN_PROTOCOL


async def send_lines(socket: WebSocket, chunks: AsyncIterator[bytes]) -> None:
    """Accept a WebSocket, send each line as a message, and close it after the last one or when its client is gone.

    The first offered subprotocol is accepted, whatever its name, except the one that carries a token.

    Args:
        socket: A WebSocket that is not accepted yet.
        chunks: Whole lines, one or several in each.
    """
    offered = [name for name in socket.scope.get("subprotocols", ()) if not name.startswith(TOKEN_PROTOCOL)]
    await socket.accept(subprotocol=offered[0] if offered else None)
    sending = asyncio.create_task(_send(socket, chunks))
    leaving = asyncio.create_task(_wait_for_end(socket))
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        sending.cancel()
        with suppress(asyncio.CancelledError, WebSocketDisconnect):
            await sending
            await socket.close()


async def _send(socket: WebSocket, chunks: AsyncIterator[bytes]) -> None:
    async for chunk in chunks:
        for line in chunk.splitlines():
            await socket.send_text(line.decode())


async def _wait_for_end(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass  # an API server reads and ignores its clients' messages
