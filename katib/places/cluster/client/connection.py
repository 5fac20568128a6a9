"""Connection to an API server: requests in plain JSON, retried if that is safe, with typed errors."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

import urllib3

from katib.errors import Backoff, ConflictError, InvalidError, KatibError, UnavailableError, invalid, one_line
from katib.places.cluster.client.answers import error_of
from katib.places.cluster.client.configuration import ClusterAccess, ServerEndpoint, access
from katib.places.cluster.client.discovery import Discovery
from katib.places.cluster.client.requests import RequestInfo, request_info
from katib.places.cluster.client.stream import ResponseStream

CONNECT_SECONDS = 5.0
READ_SECONDS = 40.0
"""Longer than a webhook may take to admit an object (30 s)."""
RELOAD_SECONDS = 5.0
"""Minimum time between reloads of the credentials after a 401."""

RETRIED_STATUSES = frozenset((429, 500, 502, 503, 504))
BACKOFF = Backoff(0.05, 2.0, factor=4.0, jitter=0.5)
MAX_ATTEMPTS = 5
"""About four seconds in all, enough for a short interruption. The caller's work queue handles longer outages."""
LONGEST_RETRY_AFTER_SECONDS = 10.0
"""A server that asks for a longer wait is not retried, so that worker threads stay free."""

_CREDENTIALS_KEPT_SECONDS = 5.0
"""Asking the package for credentials costs as much as the rest of a request; they change every few minutes."""

_ANY_FORM = {"Accept": "*/*"}
NO_HEADERS: Mapping[str, str] = MappingProxyType({})

Hook = Callable[[RequestInfo, int], None]

_log = logging.getLogger(__name__)


class HttpRequest(NamedTuple):
    """An HTTP request, ready to send.

    Attributes:
        path: From the root, quoted.
        body: Encoded body; None for no body.
        headers: Headers beside those of every request.
        timeout_seconds: Limit for one attempt to wait for the response or more of it; None for no limit.
        on_doubt: Called before a retry if the first attempt may have taken effect.
        is_stream: Whether the response is an open-ended stream.
    """

    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: bytes | None = None
    headers: Mapping[str, str] = NO_HEADERS
    timeout_seconds: float | None = READ_SECONDS
    on_doubt: Callable[[], None] = lambda: None
    is_stream: bool = False

    @property
    def info(self) -> RequestInfo:
        """The request in RBAC terms."""
        return request_info(self.method, self.path, self.query)


class ConnectionPool:
    """Pool of connections with fixed TLS settings and self-renewing credentials.

    Bodies are bytes: the package's models would cost more than the request itself.
    """

    def __init__(self, way: ServerEndpoint) -> None:
        self.host = way.host
        self._pool = way.pool
        self._read_credentials = way.credentials
        self._lock = threading.Lock()
        self._credentials: Mapping[str, str] = {}
        self._renewed = float("-inf")

    def send(self, request: HttpRequest, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        """Send a request once, with additional headers.

        Raises:
            urllib3.exceptions.HTTPError: There was no response.
            UnavailableError: The credentials are not available now.
        """
        url = f"{self.host}{request.path}" + (f"?{urlencode(request.query)}" if request.query else "")
        response: urllib3.BaseHTTPResponse = self._pool.urlopen(
            request.method,
            url,
            body=request.body,
            headers={**headers, **request.headers, **self._current_credentials()},
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=request.timeout_seconds),
            retries=False,
            redirect=False,
            preload_content=not request.is_stream,
        )
        return response

    def close(self) -> None:
        self._pool.clear()

    def _current_credentials(self) -> Mapping[str, str]:
        now = time.monotonic()
        if now - self._renewed > _CREDENTIALS_KEPT_SECONDS:
            with self._lock:  # a plugin that fetches tokens runs once, not once per thread
                if now - self._renewed > _CREDENTIALS_KEPT_SECONDS:
                    self._credentials = self._read_credentials()
                    self._renewed = time.monotonic()
        return self._credentials


def pause_before(attempt: int, retry_after_seconds: float = 0.0) -> float | None:
    """Return the pause before an attempt (the first retry is attempt 2); None if no further attempt is made."""
    if attempt > MAX_ATTEMPTS or retry_after_seconds > LONGEST_RETRY_AFTER_SECONDS:
        return None
    return retry_after_seconds + BACKOFF.pause_seconds(attempt - 1, random.random())


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds of the Retry-After header; 0 if it is absent or a date."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0


class ApiConnection:
    """Connection to one API server. Thread-safe.

    A request is retried a few times within some seconds if the server cannot be reached, is overloaded (429) or fails
    (5xx). A write may have taken effect although its response was lost; `on_doubt` of `request` reports this case.
    """

    def __init__(self, access: ClusterAccess, *, user_agent: str = "katib") -> None:
        self.namespace = access.namespace
        self.discovery = Discovery(lambda path: self.request("GET", path))
        self._access = access
        self._headers = {"Accept": "application/json", "User-Agent": user_agent}
        self._hooks: list[Hook] = []
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._session = ConnectionPool(access.load())
        self._loaded = time.monotonic()

    @property
    def host(self) -> str:
        """The server's address: `https://10.0.0.1:6443`."""
        return self._session.host

    def observe(self, hook: Hook) -> None:
        """Register a callback for each request and its response's status (0 for no response). It must be fast."""
        self._hooks.append(hook)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "",
        timeout_seconds: float = READ_SECONDS,
        on_doubt: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Send a request and return the JSON of the response.

        Args:
            method: `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
            path: From the root, quoted.
            body: JSON value to send.
            content_type: Content type of the body; patches have several.
            accept: Requested form if not plain JSON, such as metadata only.
            timeout_seconds: Limit for one attempt to wait for the response.
            on_doubt: Called before a retry if the first attempt may have taken effect.

        Raises:
            KatibError: As described in `katib.places.cluster.client.answers`.
        """
        data = None if body is None else _encoded(body)
        headers = {"Content-Type": content_type} if body is not None else {}
        if accept:
            headers["Accept"] = accept
        response = self._answer(HttpRequest(method, path, query, data, headers, timeout_seconds, on_doubt))
        return _decoded(response.data, path)

    def pages(
        self, path: str, *, query: Mapping[str, str] | None = None, page_size: int | None = None, accept: str = ""
    ) -> Iterator[dict[str, Any]]:
        """Yield the pages of a list, at least one; a page is released before the next one is fetched.

        Args:
            page_size: Objects per page; None for all.
            accept: Requested form if not whole objects.

        Raises:
            ExpiredError: The server no longer has the revision of the first page.
            KatibError: As `request`.
        """
        query = {**(query or {}), **({} if page_size is None else {"limit": str(page_size)})}
        following: str | None = ""
        while following is not None:
            answer = self.request("GET", path, query=query, accept=accept)
            following = (answer.get("metadata") or {}).get("continue") or None
            query = {**query, "continue": following or ""}
            yield answer
            del answer

    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        read_timeout_seconds: float | None = None,
    ) -> ResponseStream:
        """Open a streaming response; without a read timeout it may stay silent forever."""
        request = HttpRequest("GET", path, query, None, _ANY_FORM, read_timeout_seconds, is_stream=True)
        return ResponseStream(self._answer(request), request.info.subject)

    def close(self) -> None:
        """Stop waiting for retries and close idle connections. Streams are closed by their owners."""
        self._closing.set()
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, request: HttpRequest) -> urllib3.BaseHTTPResponse:
        """Send a request until the response is below 400 or no retry remains."""
        info = request.info
        relogged = False
        attempt = 1
        while True:
            session, asked_to_wait = self._session, 0.0
            try:
                response = session.send(request, self._headers)
                refusal = response.data if response.status >= 400 else b""  # noqa: PLR2004 - HTTP's own number
            except (urllib3.exceptions.HTTPError, OSError) as error:
                self._notify(info, 0)
                reason = one_line(error) or type(error).__name__
                failure: KatibError = UnavailableError(
                    f"{info.subject}: no answer from {session.host}, {reason}; check the API server and the network"
                )
                cause: Exception | None = error
                doubtful = not isinstance(error, urllib3.exceptions.NewConnectionError)
            else:
                self._notify(info, response.status)
                if response.status < 400:  # noqa: PLR2004 - HTTP's own number
                    return response
                failure, cause = error_of(response.status, refusal, info), None
                if response.status == 401 and not relogged:  # noqa: PLR2004 - HTTP's own number
                    relogged = True
                    if self._log_in_again(session):
                        continue
                if not _is_worth_retrying(request.method, response.status, failure):
                    raise failure
                asked_to_wait = retry_after(response.headers)
                doubtful = response.status >= 500  # noqa: PLR2004 - HTTP's own number
            attempt += 1
            pause = pause_before(attempt, asked_to_wait)
            if pause is None or self._closing.wait(pause):
                raise failure from cause
            if doubtful:
                request.on_doubt()

    def _log_in_again(self, session: ConnectionPool) -> bool:
        """Reload the credentials, once for all threads; return whether there are new ones to try."""
        with self._lock:
            if self._session is not session:
                return True
            if time.monotonic() - self._loaded < RELOAD_SECONDS:
                return False
            self._loaded = time.monotonic()
            self._session = ConnectionPool(self._access.load())
            session.close()
            return True

    def _notify(self, info: RequestInfo, status: int) -> None:
        for hook in self._hooks:
            try:
                hook(info, status)
            except Exception:  # noqa: BLE001 - an observer must not break the request that it observes
                _log.exception("Observer of requests failed", extra={"observer": repr(hook)})


def open_connection(kubeconfig: str | Path | None = None, context: str | None = None) -> ApiConnection:
    """Connect as configured by a kubeconfig file, its context, or the pod of this process.

    Sends no request. See `configuration.access`.
    """
    return ApiConnection(access(kubeconfig, context))


def _is_worth_retrying(method: str, status: int, failure: KatibError) -> bool:
    """Return whether a retry may succeed; some server failures are caused by the request itself.

    Concurrent creations that count against one quota conflict briefly.
    """
    is_contention = method == "POST" and isinstance(failure, ConflictError)
    return is_contention or (status in RETRIED_STATUSES and not isinstance(failure, InvalidError))


def _encoded(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        remedy = "use only text, numbers, lists and maps"
        raise invalid("object", f"not JSON: {error}", remedy, "not-json") from error


def _decoded(data: bytes, path: str) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except ValueError as error:
        raise UnavailableError(f"{path}: the answer is not JSON; check what stands before the API server") from error
    if not isinstance(answer, dict):
        raise UnavailableError(f"{path}: the answer is not an object; check what stands before the API server")
    return answer
