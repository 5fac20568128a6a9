"""Access to the server, and limits on requests.

An Experiment runs commands, so a request must not come from a web page that the user happens to visit. Three checks
close that door, also without a token:

- the Host header must name this server, else a rebound DNS name would make a foreign page same-origin;
- a browser's Origin must be this server's own, and its Sec-Fetch-Site must not say otherwise. Only the way to a page
  may begin at a foreign one (`katib.doors.rest.visits`): a linked page is shown to the user alone;
- with a token set, every request carries it, as a bearer token or as the password of the Basic scheme, or the cookie
  that a browser gets for it (`katib.doors.rest.sessions`). The cookie does not bypass the check before.

Behind a gateway, every request names its user (`katib.service.tuning.users`). Only the probes are answered without one.

Programs send neither Origin nor Sec-Fetch-Site and are not affected.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from starlette.requests import ClientDisconnect, Request

from katib.doors.rest.problems import Problem, problem, render
from katib.doors.rest.sessions import Sessions, cookie_name, cookie_values
from katib.doors.rest.streams import CutOffError
from katib.doors.rest.visits import Headers, ShowProblem, is_browser, is_own_site, is_visit, needs_no_token, wants_page
from katib.model.yaml_text import MAX_BYTES
from katib.service.tuning.users import UnknownUserError, User, UserHeaders

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Render = Callable[[Problem], tuple[int, bytes, dict[str, str]]]
"""Returns status, bytes and headers of the response to a refused request."""

MAX_BODY_BYTES = MAX_BYTES
"""No body but a document has a size of note."""

MAX_DISCARDED_BYTES = 4 * MAX_BODY_BYTES
"""Read of a refused request so that its client, still sending, finds the answer and not a reset connection."""

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that are answered without authentication: they reveal nothing about users."""
TOKEN_PROTOCOL = "base64url.bearer.authorization.k8s.io."  # noqa: S105 - what stands before a token
_CHALLENGES = 'Bearer realm="katib", Basic realm="katib", charset="UTF-8"'
_CHALLENGE_OF_BROWSERS = 'Bearer realm="katib"'
"""At the word Basic a browser opens a window of its own."""
_USER = "katib.user"
_BY_COOKIE = "katib.by-cookie"
_DEFAULT_PORT = "80"
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")


class BodyTooLargeError(Exception):
    """The request went on past the limit."""


class Guard:
    """ASGI middleware that refuses a request or a WebSocket before anything reads it.

    Args:
        sessions: Token or cookie of every request; None asks for nothing.
        allowed_hosts: Names that the Host header may have, without port; None allows any, which is safe only with a
            token, because a browser does not know it, or behind a gateway, which knows its own names.
        user_headers: Headers in which a gateway names the user; None: there is none, and no header is believed.
        show_problem: Returns the page that shows a problem to a person; None: there are no pages.
        render: Returns the response to a program, if it differs from REST's.
    """

    def __init__(
        self,
        app: App,
        *,
        sessions: Sessions | None,
        allowed_hosts: Collection[str] | None,
        user_headers: UserHeaders | None = None,
        show_problem: ShowProblem | None = None,
        render: Render = render,
    ) -> None:
        self._app = app
        self._render = render
        self._user_headers = user_headers
        self._sessions = sessions
        self._show_problem = show_problem
        self._hosts = None if allowed_hosts is None else frozenset(host.lower().strip("[]") for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        is_socket = scope["type"] == "websocket"
        scope.setdefault("method", "GET")
        headers = Headers(scope["headers"])
        refusal = (
            self._check_host(headers)
            or _check_site(scope, headers)
            or self._check_token(scope, headers)
            or self._note_user(scope)
            or _check_length(headers)
        )
        if refusal is not None:
            if is_socket:
                await receive()
                await self._respond(_denying(send), refusal)
                return
            if not headers.get("expect"):  # who waits for "100 Continue" has sent no body yet
                await _discard_body(receive)
            await self._refuse(scope, headers, refusal, receive, send)
            return
        if is_socket:
            await self._app(scope, receive, send)
            return
        await self._pass_on(scope, receive, send)

    async def _refuse(self, scope: Scope, headers: Headers, refusal: Problem, receive: Receive, send: Send) -> None:
        """Answer with the problem; a person without a session gets a page."""
        challenge = _CHALLENGE_OF_BROWSERS if is_browser(headers) else _CHALLENGES
        if (
            self._show_problem is None
            or not wants_page(scope["method"], scope["path"], headers)
            or refusal["status"] != HTTPStatus.UNAUTHORIZED
        ):
            await self._respond(send, refusal, {} if self._user_headers else {"www-authenticate": challenge})
            return
        page = self._show_problem(Request(scope), refusal)
        if page.status_code == HTTPStatus.UNAUTHORIZED:
            page.headers["www-authenticate"] = _CHALLENGE_OF_BROWSERS
        await page(scope, receive, send)

    def _check_host(self, headers: Headers) -> Problem | None:
        if self._hosts is None or headers.host_name in self._hosts:
            return None
        host = headers.get("host")
        return problem(403, "ForeignHost", f'this server is not called "{host}"; use the address it printed')

    def _check_token(self, scope: Scope, headers: Headers) -> Problem | None:
        if self._sessions is None or scope["path"] in OPEN_PATHS:
            return None
        cookies = cookie_values(headers.get("cookie"), session_cookie(headers))
        scope[_BY_COOKIE] = self._sessions.is_valid(cookies, time.time())
        if scope[_BY_COOKIE] or (self._show_problem is not None and needs_no_token(scope["path"])):
            return None
        if self._sessions.is_token(_token_in(headers.get("authorization"))):
            return None
        if scope["type"] == "websocket" and self._sessions.is_token(_token_in_protocol(headers)):
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
            await send(_with_type_kept(message))

        try:
            await self._app(scope, counted_receive, noting_send)
        except (CutOffError, ClientDisconnect):
            return  # the server closes the connection, and a client that is there sees that the answer is not complete
        except BodyTooLargeError:
            if started:
                raise
            if more_body:
                await _discard_body(receive)
            await self._respond(send, _too_large())

    async def _respond(self, send: Send, body: Problem, challenge: Mapping[str, str] = MappingProxyType({})) -> None:
        status, content, headers = self._render(body)
        if status == HTTPStatus.UNAUTHORIZED:
            headers |= challenge
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        raw += [(b"content-length", str(len(content)).encode()), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": content})


def user_of(scope: Scope) -> User | None:
    """Return the user of a request that passed the guard; None without a gateway."""
    user: User | None = scope.get(_USER)
    return user


def is_signed_in(scope: Scope) -> bool:
    """Return whether a request that passed the guard brought the cookie of a browser that signed in."""
    return bool(scope.get(_BY_COOKIE))


def session_cookie(headers: Headers) -> str:
    """Return the name of the cookie for the address under which a browser knows this server."""
    return cookie_name(headers.port or _DEFAULT_PORT)


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


def _token_in_protocol(headers: Headers) -> bytes:
    """Return the token among the subprotocols of a WebSocket, as browsers send it; empty when there is none.

    As an API server has it, another subprotocol has to be beside it.
    """
    names = [name.strip() for name in headers.get("sec-websocket-protocol").split(",")]
    found = [name.removeprefix(TOKEN_PROTOCOL) for name in names if name.startswith(TOKEN_PROTOCOL)]
    if len(found) != 1 or len(names) == 1:
        return b""
    try:
        return base64.urlsafe_b64decode(found[0] + "=" * (-len(found[0]) % 4))
    except (binascii.Error, ValueError):
        return b""


def _denying(send: Send) -> Send:
    """Return a function that sends an HTTP response in place of the acceptance of a WebSocket."""

    async def deny(message: Message) -> None:
        await send({**message, "type": f"websocket.{message['type']}"})

    return deny


def _check_site(scope: Scope, headers: Headers) -> Problem | None:
    if is_own_site(headers) or is_visit(scope["method"], scope["path"], headers):
        return None
    asked_by = headers.get("origin") or headers.get("sec-fetch-site").lower()
    return problem(403, "CrossSite", f"requests of other web pages are refused ({asked_by})")


def _check_length(headers: Headers) -> Problem | None:
    length = headers.get("content-length")
    return _too_large() if length.isdigit() and int(length) > MAX_BODY_BYTES else None


def _too_large() -> Problem:
    return problem(413, "TooLarge", f"the body is larger than {MAX_BODY_BYTES} bytes")


def _with_type_kept(message: Message) -> Message:
    """Make browsers keep to the content type of an answer: output and names of others are never a page."""
    if message["type"] != "http.response.start":
        return message
    headers = [*message.get("headers", ())]
    if not any(name.lower() == _NO_SNIFFING[0] for name, _ in headers):
        headers.append(_NO_SNIFFING)
    return {**message, "headers": headers}


async def _discard_body(receive: Receive) -> None:
    discarded = 0
    while discarded <= MAX_DISCARDED_BYTES:
        message = await receive()
        discarded += len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return
