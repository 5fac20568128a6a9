"""Who may speak to the server, and how much they may send.

An Experiment runs commands, so a request must not come from a web page that the user happens to visit. Three checks
close that door, also where no token is asked for:

- the Host header must name this server, else a rebound DNS name would make a foreign page same-origin;
- a browser's Origin must be this server's own, and its Sec-Fetch-Site must not say otherwise;
- with a token set, every request carries it, as a bearer token or as the password of the Basic scheme, which is what
  browsers know; they keep it for this one port, which they would not do with a cookie.

Behind a gateway, every request names its user (`katib.rest.users`). Only the probes are answered to everybody.

Programs send neither Origin nor Sec-Fetch-Site and are not affected.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from katib.api.yaml_text import MAX_BYTES
from katib.rest.problems import Problem, problem, render
from katib.rest.streams import CutOffError
from katib.rest.users import UnknownUserError, User, UserHeaders

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = MAX_BYTES
"""No body but a document has a size of note."""

MAX_DISCARDED_BYTES = 4 * MAX_BODY_BYTES
"""Read of a refused request so that its client, still sending, finds the answer and not a reset connection."""

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""What is answered to everybody: it says nothing about anybody."""
_CHALLENGES = 'Bearer realm="katib", Basic realm="katib", charset="UTF-8"'
_USER = "katib.user"
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
            token, because a browser does not know it, or behind a gateway, which knows its own names.
        user_headers: Where a gateway writes who asks; None: there is none, and no header says anything.
    """

    def __init__(
        self,
        app: App,
        *,
        token: str | None,
        allowed_hosts: Collection[str] | None,
        user_headers: UserHeaders | None = None,
    ) -> None:
        self._app = app
        self._user_headers = user_headers
        self._token = token.encode() if token else None
        self._hosts = None if allowed_hosts is None else frozenset(host.lower().strip("[]") for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            if not _Headers(scope).get("expect"):  # who waits for "100 Continue" has sent no body yet
                await _discard_body(receive)
            await _respond(send, refusal, {} if self._user_headers else {"www-authenticate": _CHALLENGES})
            return
        await self._pass_on(scope, receive, send)

    def _refusal(self, scope: Scope) -> Problem | None:
        headers = _Headers(scope)
        return (
            self._check_host(headers)
            or _check_site(headers)
            or self._check_token(headers, scope["path"])
            or self._note_user(scope)
            or _check_length(headers)
        )

    def _check_host(self, headers: _Headers) -> Problem | None:
        host = headers.get("host")
        if self._hosts is None or _host_name(host) in self._hosts:
            return None
        return problem(403, "ForeignHost", f'this server is not called "{host}"; use the address it printed')

    def _check_token(self, headers: _Headers, path: str) -> Problem | None:
        if self._token is None or path in OPEN_PATHS:
            return None
        if hmac.compare_digest(_token_in(headers.get("authorization")), self._token):
            return None
        return problem(401, "Unauthorized", "send the server's token as `Authorization: Bearer ...`, or as a password")

    def _note_user(self, scope: Scope) -> Problem | None:
        """Note the user of a request; `user_of` finds it."""
        if self._user_headers is None or scope["path"] in OPEN_PATHS:
            return None
        try:
            scope[_USER] = self._user_headers.user_of(scope["headers"])
        except UnknownUserError as error:
            return problem(401, "Unauthorized", str(error))
        return None

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        received, more_body, started = 0, True, False

        async def counted_receive() -> Message:
            nonlocal received, more_body
            message = await receive()
            received += len(message.get("body", b""))
            more_body = message.get("more_body", False)
            if received > MAX_BODY_BYTES:
                raise BodyTooLargeError
            return message

        async def noting_send(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, counted_receive, noting_send)
        except CutOffError:
            return  # the server closes the connection, and the client sees that the answer is not complete
        except BodyTooLargeError:
            if started:
                raise
            if more_body:
                await _discard_body(receive)
            await _respond(send, _too_large())


def user_of(scope: Scope) -> User | None:
    """Return the user of a request that passed the guard; None where no gateway says who that is."""
    user: User | None = scope.get(_USER)
    return user


class _Headers:
    """Headers of a request; repeated ones are joined, so that a second Host cannot hide behind the first."""

    def __init__(self, scope: Scope) -> None:
        self._values: dict[str, str] = {}
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip()
            self._values[name] = f"{self._values[name]}, {value}" if name in self._values else value

    def get(self, name: str) -> str:
        return self._values.get(name, "")


def _token_in(authorization: str) -> bytes:
    """Return the token that a request brings; empty when it brings none that can be read."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return given.strip().encode("latin-1")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(given, validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return b""


def _host_name(host: str) -> str:
    """Return the name in a Host header, without port and brackets, in lower case; empty when it is malformed."""
    match = _HOST.fullmatch(host)
    return (match["v6"] or match["name"]).lower() if match else ""


def _check_site(headers: _Headers) -> Problem | None:
    origin, site = headers.get("origin"), headers.get("sec-fetch-site").lower()
    foreign_origin = origin and urlsplit(origin).netloc.lower() != headers.get("host").lower()
    if not foreign_origin and site in _OWN_SITES:
        return None
    return problem(403, "CrossSite", f"requests of other web pages are refused ({origin or site})")


def _check_length(headers: _Headers) -> Problem | None:
    length = headers.get("content-length")
    return _too_large() if length.isdigit() and int(length) > MAX_BODY_BYTES else None


def _too_large() -> Problem:
    return problem(413, "TooLarge", f"the body is larger than {MAX_BODY_BYTES} bytes")


async def _discard_body(receive: Receive) -> None:
    discarded = 0
    while discarded <= MAX_DISCARDED_BYTES:
        message = await receive()
        discarded += len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return


async def _respond(send: Send, body: Problem, challenge: Mapping[str, str] = MappingProxyType({})) -> None:
    status, content, headers = render(body)
    if status == HTTPStatus.UNAUTHORIZED:
        headers |= challenge
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    raw += [(b"content-length", str(len(content)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": content})
