"""One connection for everything that the pages of a browser follow.

Over HTTP/1.1 a browser keeps six connections to a server, so with a stream for each page the seventh page would wait
for ever. The stream of a browser stays open while its pages add to it and remove from it, and a page sends each address
with its own rights: it is answered by the route of that address, whose answer the stream carries.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import logging
import re
from collections.abc import AsyncIterator, Hashable, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Message, Scope

from katib.doors.rest.streams import HEARTBEAT_SECONDS, Closing
from katib.doors.rest.visits import UI_PREFIX
from katib.doors.ui.live import CHECK_SECONDS, STREAM_HEADERS
from katib.doors.ui.tables import Viewer
from katib.errors import NotFoundError, invalid

_log = logging.getLogger(__name__)
_Utf8 = codecs.getincrementaldecoder("utf-8")
_LONGEST = 4_096
_BUFFERED_EVENTS = 64
"""Maximum number of unsent events: a program that prints faster than a browser reads waits, and no memory fills."""
_STREAMS = re.compile(
    r"data/(list|(experiments|trials)/[^/?]+/[^/?]+)/live|api/v1/namespaces/[^/?]+/trials/[^/?]+/logs"
)
_LEFT_OUT = frozenset({b"accept-encoding", b"content-length", b"content-type", b"last-event-id"})
_SHARED = ("type", "asgi", "http_version", "scheme", "server", "client", "root_path", "state")
"""Entries of a scope that a request has in common with the one that it was made of."""


class _Wanted(BaseModel):
    """An address below the root of all pages, and the id of its last event if it was followed before."""

    address: str = Field(max_length=_LONGEST)
    last: str = Field(default="", max_length=_LONGEST)


class _Changes(BaseModel):
    """Streams to add, and to remove, each by the key that its page gave it."""

    open: dict[str, _Wanted] = Field(default_factory=dict, max_length=1_000)
    close: list[str] = Field(default_factory=list, max_length=1_000)


def shared_stream_routes(closing: Closing) -> APIRouter:
    """Return the routes of the stream of a browser, and of changes of what it carries."""
    router = APIRouter(prefix="/data/live")
    browsers: dict[tuple[Hashable, str], _Browser] = {}

    @router.get("")
    async def connect(user: Viewer, id: str = "") -> StreamingResponse:  # noqa: A002 - a parameter of the address
        async def events() -> AsyncIterator[bytes]:
            browser = browsers[user, id] = _Browser()
            try:
                async for part in browser.events(closing):
                    yield part
            finally:
                browser.close()
                if browsers.get((user, id)) is browser:
                    del browsers[user, id]

        return StreamingResponse(events(), media_type="text/event-stream", headers=STREAM_HEADERS)

    @router.post("/{id}", status_code=HTTPStatus.NO_CONTENT)
    async def change(request: Request, user: Viewer, id: str, changes: _Changes) -> None:  # noqa: A002
        browser = browsers.get((user, id))
        if browser is None:
            raise NotFoundError("this stream has ended; connect again")
        scopes = {key: _scope_of(request.scope, wanted) for key, wanted in changes.open.items()}
        for key in (*changes.close, *scopes):
            browser.leave(key)
        for key, scope in scopes.items():
            browser.carry(key, request.app, scope)

    return router


def _scope_of(scope: Scope, wanted: _Wanted) -> dict[str, Any]:
    """Return a request for a stream with the rights of another request.

    Raises:
        InvalidError: The address is not one of a stream.
    """
    address, _, query = wanted.address.partition("?")
    if not _STREAMS.fullmatch(address):
        remedy = "name the live stream of a list, an experiment or a trial, or a log"
        raise invalid("open", f"{wanted.address!r} is not a stream", remedy, "stream-address")
    path = f"{scope['path'].partition(f'{UI_PREFIX}/')[0]}{UI_PREFIX}/{address}"
    headers = [(name, value) for name, value in scope["headers"] if name not in _LEFT_OUT]
    return {
        **{key: scope[key] for key in _SHARED if key in scope},
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [*headers, (b"last-event-id", wanted.last.encode())] if wanted.last else headers,
    }


@dataclass(slots=True)
class _Browser:
    """The open connection of a browser, and the answers that it carries; used on the loop alone."""

    _queue: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(_BUFFERED_EVENTS))
    _carried: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def events(self, closing: Closing) -> AsyncIterator[bytes]:
        """Yield an event for each one of the carried streams, until the server ends."""
        yield b"retry: 1000\n\nevent: ready\ndata: {}\n\n"
        silent = 0.0
        while not closing.begun:
            try:
                yield await asyncio.wait_for(self._queue.get(), CHECK_SECONDS)
                silent = 0.0
            except TimeoutError:
                silent += CHECK_SECONDS
                if silent >= HEARTBEAT_SECONDS:
                    silent = 0.0
                    yield b": still here\n\n"

    def carry(self, key: str, app: ASGIApp, scope: Scope) -> None:
        """Answer a request into the stream."""
        self._carried[key] = asyncio.get_running_loop().create_task(self._answer(key, app, scope))

    def leave(self, key: str) -> None:
        """Stop an answer."""
        if task := self._carried.pop(key, None):
            task.cancel()

    def close(self) -> None:
        """Stop all answers."""
        for key in tuple(self._carried):
            self.leave(key)

    async def _answer(self, key: str, app: ASGIApp, scope: Scope) -> None:
        answer, asked = _Answer(key, self._queue), False

        async def receive() -> Message:
            nonlocal asked
            if asked:
                await asyncio.get_running_loop().create_future()  # until the task is cancelled
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}

        try:
            await app(scope, receive, answer.send)
        except Exception:  # noqa: BLE001 - logged; the page asks again
            _log.exception("The answer of %s ended early", scope["path"])
        if self._carried.get(key) is asyncio.current_task():
            del self._carried[key]
            await answer.tell("over" if answer.is_complete else "cut")


@dataclass(slots=True)
class _Answer:
    """One answer as events of the stream: of server-sent events their name, data and id; else its text.

    Attributes:
        is_complete: Whether its end was sent.
    """

    key: str
    queue: asyncio.Queue[bytes]
    is_complete: bool = False
    _status: int = 0
    _has_events: bool = False
    _body: bytes = b""
    _text: codecs.IncrementalDecoder = field(default_factory=lambda: _Utf8("replace"))

    async def tell(self, name: str, data: Any = None, id_: str = "") -> None:
        """Send an event."""
        told = {"to": self.key, "name": name, "data": data, "id": id_}
        await self.queue.put(f"data: {json.dumps(told, separators=(',', ':'))}\n\n".encode())

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Take a part of the answer."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            kind = dict(message["headers"]).get(b"content-type", b"")
            self._has_events = kind.startswith(b"text/event-stream")
            if self._status == HTTPStatus.OK:
                await self.tell("begin")
            return
        body, self.is_complete = message.get("body", b""), not message.get("more_body")
        if self._status != HTTPStatus.OK:
            self._body += body
            if self.is_complete:
                await self.tell("problem", json.loads(self._body))
        elif not self._has_events:
            if text := self._text.decode(body, final=self.is_complete):
                await self.tell("text", text)
        else:
            *events, self._body = (self._body + body).split(b"\n\n")
            for one in events:
                fields = dict(line.split(": ", 1) for line in one.decode().splitlines() if not line.startswith(":"))
                if "event" in fields:
                    await self.tell(fields["event"], json.loads(fields["data"]), fields.get("id", ""))
