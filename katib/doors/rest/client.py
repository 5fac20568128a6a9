"""The tuning service at the other end of HTTP."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import quote, urlsplit

import httpx
from msgspec import json, structs

from katib.doors.rest.guard import LOOPBACK_HOSTS
from katib.doors.rest.notes import account_directory, note_of
from katib.doors.rest.problems import error_of
from katib.errors import ForbiddenError, InternalError, InvalidError, KatibError, NotFoundError, UnavailableError
from katib.service.tuning.service import (
    BOOKMARK,
    LONGEST_COMMAND,
    Change,
    FollowChanges,
    OfDocument,
    ReadFile,
    ReadLogs,
    Run,
    TuningService,
)
from katib.service.tuning.verbs import DOCUMENT, A, Verb, Way, given, read_answer, way_of

_STREAMS = ReadLogs, ReadFile, FollowChanges
_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 60.0
_CLOCK_SLACK_SECONDS = 0.5
_LOGIN_STATUSES = frozenset((HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN))
_GATEWAY_STATUSES = frozenset((HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT))


class HttpTuningService(TuningService):
    """A tuning service behind a URL. Thread-safe; `close` it when done.

    Args:
        url: Address of the server, such as `http://127.0.0.1:8765`.
        token: Bearer token, if the server or a gateway before it asks for one. None: the one that a server of this
            account keeps, if one listens there (`katib.doors.rest.notes`).
        socket: Path of a Unix socket in place of the host and port of the URL; empty: none.
    """

    def __init__(self, url: str, token: str | None = None, *, socket: str = "") -> None:
        note = note_of(url, account_directory()) if token is None and not socket else None
        url, token = (url, token) if note is None else (note.url, note.token)
        self._url = url.rstrip("/")
        self._local = urlsplit(url).hostname in LOOPBACK_HOSTS
        # The certificates of this machine count, or of $SSL_CERT_FILE. Reading them takes a moment.
        self._http = httpx.Client(
            base_url=f"{self._url}/api/v1/",
            headers={b"authorization": f"Bearer {token}".encode()} if token else {},
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            trust_env=False,  # a proxy of the environment has no business between us and loopback
            verify=ssl.create_default_context() if urlsplit(url).scheme == "https" else False,
            transport=httpx.HTTPTransport(uds=socket) if socket else None,
        )

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, request: Verb[A]) -> A:
        if isinstance(request, _STREAMS):
            stream: object = self._changes(request) if isinstance(request, FollowChanges) else self._bytes(request)
            return cast("A", stream)
        answer = self._submitted(request) if isinstance(request, OfDocument) else self._send(request)
        return read_answer(type(request), answer)

    def _submitted(self, request: OfDocument[Any]) -> Any:
        """Send a document; the server may read its file, and the answer names it as the caller did."""
        shared, source = self._source(request.source), request.source
        changes: dict[str, Any] = {"source": shared}
        if isinstance(request, Run) and len(request.command) > LONGEST_COMMAND:
            changes["command"] = ""
        try:
            answer = self._send(structs.replace(request, **changes))
        except InvalidError as error:
            raise InvalidError(replace(e, path=source) if e.path == shared else e for e in error.errors) from error
        if isinstance(request, Run):
            shown = partial(_renamed, shared, source)
            answer["notes"] = list(map(shown, answer["notes"]))
            if answer["ways"] is not None:
                answer["ways"]["changes"] = list(map(shown, answer["ways"]["changes"]))
        return answer

    def _bytes(self, request: ReadLogs | ReadFile) -> Iterator[bytes]:
        with self._stream(request) as response:
            yield from response.iter_bytes()

    def _changes(self, request: FollowChanges) -> Iterator[Change]:
        """Yield changes; a lost connection is an error."""
        seconds = request.timeout_seconds
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._stream(request) as response:
            for name, data, cursor in _server_sent_events(response.iter_lines()):
                if name == "problem":
                    raise error_of(data, int(data.get("status", 0)))
                if name == "end":
                    return
                yield Change(data["type"], data["object"], cursor) if data else Change(BOOKMARK, {}, cursor)
        if deadline is None or time.monotonic() < deadline - _CLOCK_SLACK_SECONDS:
            raise UnavailableError(f"the server at {self._url} ended the stream; it was probably stopped")

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    def _request(self, request: Verb[Any]) -> httpx.Request:
        way, limit = way_of(request), _ANSWER_SECONDS + getattr(request, "wait_seconds", 0.0)
        rest, body, content = request.rest, dict(_sent(request, way, "body")), None
        if rest.body == DOCUMENT:
            content = str(body[DOCUMENT]).encode()
        elif rest.body:
            content = json.encode(body)
        media_type = {"content-type": "application/yaml" if rest.body == DOCUMENT else "application/json"}
        has_limit = rest.has_limit and not isinstance(request, _STREAMS)
        return self._http.build_request(
            rest.method,
            way.path.format_map({name: _quoted(value) for name, value in _sent(request, way, "path")}),
            params=dict(_sent(request, way, "query")),
            headers={**dict(_sent(request, way, "header")), **({} if content is None else media_type)},
            content=content,
            timeout=httpx.Timeout(limit if has_limit else None, connect=_CONNECT_SECONDS),
        )

    def _send(self, request: Verb[Any]) -> Any:
        try:
            response = self._http.send(self._request(request))
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        return None if response.status_code == HTTPStatus.NO_CONTENT else self._decode(response)

    def exchange(self, path: str, message: bytes) -> bytes:
        """Return the answer to a message in the protocol of another library (`create_app`, `doors`)."""
        try:
            response = self._http.post(path, content=message)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if not response.is_success:
            self._decode(response)
        return response.content

    def _source(self, source: str) -> str:
        """Return how to name a file to the server: to one on this machine its whole path, to others its name only."""
        path = Path(source)
        return str(path.resolve()) if self._local and path.is_file() else path.name

    def _decode(self, response: httpx.Response) -> Any:
        try:
            body = response.json()
        except ValueError as error:
            raise self._foreign(response) from error
        if response.is_success:
            return body
        if "Basic" in response.headers.get("www-authenticate", "") and "reason" in body:
            raise ForbiddenError(
                f"{self._url} asks for a token; give it with --token or in KATIB_TOKEN. A server that runs experiments "
                "itself keeps it in the file `token` of its data directory"
            )
        if not isinstance(body, dict) or "reason" not in body:
            raise self._foreign(response)
        raise error_of(body, response.status_code)

    @contextmanager
    def _stream(self, request: Verb[Any]) -> Iterator[httpx.Response]:
        try:
            response = self._http.send(self._request(request), stream=True)
            with closing(response):
                if not response.is_success:
                    response.read()
                    self._decode(response)
                yield response
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: httpx.HTTPError) -> UnavailableError:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return UnavailableError(
                f"the certificate of {self._url} is not trusted ({error}); name the file of its authority in "
                "SSL_CERT_FILE"
            )
        if isinstance(error, httpx.ConnectError):
            remedy = "start it with `katib serve`, or check --server"
            return UnavailableError(f"no server answers at {self._url}; {remedy}")
        if isinstance(error, httpx.TimeoutException):
            return UnavailableError(f"the server at {self._url} did not answer in time; try again")
        return UnavailableError(f"the connection to {self._url} was lost ({error}); try again")

    def _foreign(self, response: httpx.Response) -> KatibError:
        """Return the error for an answer that no server of ours gives: a gateway's, or another server's."""
        status = response.status_code
        if status in _LOGIN_STATUSES or response.has_redirect_location:
            return ForbiddenError(
                f"{self._url} answers {status}: a gateway wants a login; give a token that it accepts with --token or "
                "in KATIB_TOKEN"
            )
        if status in _GATEWAY_STATUSES:
            return UnavailableError(f"{self._url} answers {status}: a gateway does not reach the server; try again")
        if status == HTTPStatus.NOT_FOUND:
            return NotFoundError(f"what listens at {self._url} is no katib server; check --server")
        return InternalError(f"{self._url} answered {status} with something else than JSON")


def _renamed(shared: str, source: str, text: str) -> str:
    """Return a text in which a file has the name that the user knows."""
    return text.replace(f" in {shared}", f" in {source}")


def _sent(request: Verb[Any], way: Way, place: str) -> Iterator[tuple[str, Any]]:
    """Yield name and value of the fields of a request in one place, without defaults."""
    for one, value in given(request, way, place):
        if place in ("query", "header"):
            yield one.wire, str(value).lower() if isinstance(value, bool) else value
        elif isinstance(value, Mapping):
            yield one.wire, _texts(value)
        else:
            yield one.wire, value


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return readings as text: JSON has neither NaN nor infinities."""
    return {name: value if isinstance(value, str) else repr(float(value)) for name, value in values.items()}


def _quoted(part: str) -> str:
    """Return one part of a path; `.` and `..` are names here like any other."""
    return quote(part, safe="") if part.strip(".") else part.replace(".", "%2E")


def _server_sent_events(lines: Iterable[str]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield name, data and id of each event that has data or an id; comments and other fields are skipped."""
    name, cursor = "", ""
    data: list[str] = []
    for line in lines:
        if not line:
            if data or cursor:
                yield name, json.decode("\n".join(data) or "{}"), cursor
            name, data, cursor = "", [], ""
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id":
            cursor = value
