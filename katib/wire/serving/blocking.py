"""Applications made of functions that may block, for processes without FastAPI: webhooks, probes, metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus

from katib.wire.serving.listening import App, Message, Receive, Send

MAX_BODY_BYTES = 8 * 1024 * 1024
"""An update carries the object twice, and an API server accepts objects of up to 3 MiB."""

TEXT = "text/plain; charset=utf-8"

Answer = tuple[int, str, bytes]
"""Status, content type and body."""

_THREADS = 64
"""Maximum number of concurrent requests: those that wait for a service do not delay others."""

_LOG = logging.getLogger(__name__)


def answered_by(answer: Callable[[str, bytes], Answer], method: str) -> App:
    """Return an application whose requests a function answers, on threads.

    Args:
        answer: Takes the path, without the query, and the body of a request.
    """
    threads = ThreadPoolExecutor(_THREADS, "katib-requests")

    def answered(path: str, body: bytes) -> Answer:
        try:
            return answer(path, body)
        except Exception:  # noqa: BLE001 - one failure must not affect other requests
            _LOG.exception("request failed", extra={"path": path})
            return HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, b"it failed; the log has the cause\n"

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        length = int(dict(scope["headers"]).get(b"content-length", b"0"))
        if scope["method"] != method:
            found = _refused(HTTPStatus.METHOD_NOT_ALLOWED)
        elif length > MAX_BODY_BYTES or (body := await body_of(receive, MAX_BODY_BYTES)) is None:
            found = _refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            found = await asyncio.get_running_loop().run_in_executor(threads, answered, scope["path"], body)
        await respond(send, *found)

    return app


def _refused(status: HTTPStatus) -> Answer:
    return status, TEXT, status.phrase.encode()


async def body_of(receive: Receive, most_bytes: int) -> bytes | None:
    """Return the body of a request; None if it is larger, or ends early because its client disconnected."""
    body = bytearray()
    while len(body) <= most_bytes and (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            return bytes(body) if len(body) <= most_bytes else None
    return None


async def respond(send: Send, status: int, content_type: str, body: bytes) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
