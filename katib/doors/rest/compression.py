"""Pages and their data, compressed for browsers: a figure takes half of its bytes, a table an eighth."""

from __future__ import annotations

import asyncio
import gzip

from katib.doors.rest.guard import App, Message, Receive, Scope, Send
from katib.doors.rest.visits import Headers

_LEAST_BYTES = 1_024
_THREAD_BYTES = 32_768
"""Longer answers are compressed on a thread, so that others do not wait."""
_LEVEL = 5
_TYPES = ("text/html", "application/json", "application/problem+json")


class Compression:
    """ASGI middleware that compresses answers that are complete. Streams pass as they are, each part at once.

    Args:
        app: Whose answers they are.
        prefix: Of the paths that it does so for. Programs on this machine gain nothing.
    """

    def __init__(self, app: App, *, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        is_page = scope["type"] == "http" and scope["path"].startswith(self._prefix)
        if not is_page or "gzip" not in Headers(scope["headers"]).get("accept-encoding"):
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Answer(send))


class _Answer:
    """Sends an answer once its first part is there, which shows whether it is complete."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = Headers(message.get("headers", ()))
            if headers.get("content-type").partition(";")[0].strip() in _TYPES and not headers.get("content-encoding"):
                self._start = message
                return
        start, self._start = self._start, None
        if start is not None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                start, message = await _compressed(start, message)
            await self._send(start)
        await self._send(message)


async def _compressed(start: Message, message: Message) -> tuple[Message, Message]:
    body = message.get("body", b"")
    headers = [*start.get("headers", ()), (b"vary", b"accept-encoding")]
    if len(body) >= _LEAST_BYTES:
        if len(body) < _THREAD_BYTES:
            body = gzip.compress(body, _LEVEL)
        else:
            body = await asyncio.to_thread(gzip.compress, body, _LEVEL)
        headers = [(name, value) for name, value in headers if name.lower() != b"content-length"]
        headers += [(b"content-encoding", b"gzip"), (b"content-length", str(len(body)).encode())]
    return {**start, "headers": headers}, {**message, "body": body}
