"""Who may speak to the server, and how much they may send.

An Experiment runs commands, so a request must not come from a web page that the user happens to visit. Three checks
close that door, also on loopback where no token is asked for:

- the Host header must name this server, else a rebound DNS name would make a foreign page same-origin;
- a browser's Origin must be this server's own, and its Sec-Fetch-Site must not say otherwise;
- with a token set, every request but `/healthz` carries it.

Programs send neither Origin nor Sec-Fetch-Site and are not affected.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from katib.api.yaml_text import MAX_BYTES
from katib.rest.problems import problem, render

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = MAX_BYTES
"""No body but a document has a size of note."""

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_OPEN_PATHS = frozenset({"/healthz"})
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<name>[\w.-]+))(?::\d+)?", re.ASCII)
_OWN_SITES = frozenset({"", "same-origin", "none"})


class BodyTooLargeError(Exception):
    """The request went on past the limit."""


class Guard:
    """ASGI middleware that refuses a request before anything reads it.

    Args:
        app: What is guarded.
        token: Bearer token that every request must carry; None asks for none.
        allowed_hosts: Names that the Host header may have, without port; None allows any, which is safe only with a
            token, because a browser does not know it.
    """

    def __init__(self, app: App, *, token: str | None, allowed_hosts: Collection[str] | None) -> None:
        self._app = app
        self._token = token.encode() if token else None
        self._hosts = None if allowed_hosts is None else frozenset(host.lower().strip("[]") for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _respond(send, refusal)
            return
        await self._pass_on(scope, receive, send)

    def _refusal(self, scope: Scope) -> dict[str, Any] | None:
        headers = _Headers(scope)
        return (
            self._check_host(headers)
            or _check_site(headers)
            or self._check_token(headers, scope["path"])
            or _check_length(headers)
        )

    def _check_host(self, headers: _Headers) -> dict[str, Any] | None:
        host = headers.get("host")
        if self._hosts is None or _host_name(host) in self._hosts:
            return None
        return problem(403, "ForeignHost", f'this server is not called "{host}"; use the address it printed')

    def _check_token(self, headers: _Headers, path: str) -> dict[str, Any] | None:
        if self._token is None or path in _OPEN_PATHS:
            return None
        scheme, _, given = headers.get("authorization").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), self._token):
            return None
        return problem(401, "Unauthorized", "send the server's token as `Authorization: Bearer ...`")

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        received, started = 0, False

        async def counted_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise BodyTooLargeError
            return message

        async def noting_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, counted_receive, noting_send)
        except BodyTooLargeError:
            if started:
                raise
            await _respond(send, _too_large())


class _Headers:
    """Headers of a request; repeated ones are joined, so that a second Host cannot hide behind the first."""

    def __init__(self, scope: Scope) -> None:
        self._values: dict[str, str] = {}
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip()
            self._values[name] = f"{self._values[name]}, {value}" if name in self._values else value

    def get(self, name: str) -> str:
        return self._values.get(name, "")


def _host_name(host: str) -> str:
    """Return the name in a Host header, without port and brackets, in lower case; empty when it is malformed."""
    match = _HOST.fullmatch(host)
    return (match["v6"] or match["name"]).lower() if match else ""


def _check_site(headers: _Headers) -> dict[str, Any] | None:
    origin, site = headers.get("origin"), headers.get("sec-fetch-site").lower()
    foreign_origin = origin and urlsplit(origin).netloc.lower() != headers.get("host").lower()
    if not foreign_origin and site in _OWN_SITES:
        return None
    return problem(403, "CrossSite", f"requests of other web pages are refused ({origin or site})")


def _check_length(headers: _Headers) -> dict[str, Any] | None:
    length = headers.get("content-length")
    return _too_large() if length.isdigit() and int(length) > MAX_BODY_BYTES else None


def _too_large() -> dict[str, Any]:
    return problem(413, "TooLarge", f"the body is larger than {MAX_BODY_BYTES} bytes")


async def _respond(send: Send, body: dict[str, Any]) -> None:
    status, content, headers = render(body)
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    raw += [(b"content-length", str(len(content)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": content})
