"""Errors as problem details (RFC 9457), and back.

Every error body of the server is made here, those of the framework too, so that a client needs one parser.
"""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from katib.errors import (
    ERROR_CODES,
    FieldError,
    InternalError,
    InvalidError,
    KatibError,
    UnavailableError,
    code_of,
    shortage_of,
)

MEDIA_TYPE = "application/problem+json"
SCHEMAS = "#/components/schemas/"
TYPE_PREFIX = "urn:katib:problem:"
_RETRY_AFTER_SECONDS = 2

_TITLES = {
    "Invalid": "The input breaks at least one rule",
    "NotFound": "There is no such object",
    "AlreadyExists": "An object of that name exists",
    "Conflict": "The object changed since it was read",
    "Expired": "The place in the stream is no longer kept",
    "Unavailable": "Something the service depends on does not answer",
    "Terminal": "An action is required before this can succeed",
    "Internal": "A bug in the server",
}


class BrokenRule(TypedDict):
    """One thing wrong with the input."""

    path: str
    cause: str
    remedy: str
    origin: str


class Problem(TypedDict):
    """An error, as RFC 9457 describes it."""

    type: Annotated[str, Meta(description="`urn:katib:problem:` and the reason in lower case.")]
    title: str
    status: int
    detail: str
    reason: Annotated[str, Meta(description="Stable word for programs, such as `NotFound`.")]
    errors: list[BrokenRule]


PROBLEM: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "An error, as RFC 9457 describes it.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"{SCHEMAS}Problem"}}},
    }
}
"""Answer that every route may give."""


def problem(status: int, reason: str, detail: str, errors: tuple[FieldError, ...] = (), *, title: str = "") -> Problem:
    kebab = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", reason).lower()
    return {
        "type": TYPE_PREFIX + kebab,
        "title": title or _TITLES.get(reason, HTTPStatus(status).phrase),
        "status": status,
        "detail": detail,
        "reason": reason,
        "errors": [{"path": e.path, "cause": e.cause, "remedy": e.remedy, "origin": e.origin} for e in errors],
    }


def problem_of(error: BaseException) -> Problem:
    """Return the problem body of an error; a foreign exception shows nothing of itself."""
    code = code_of(error)
    if isinstance(error, InvalidError):
        return problem(code.http_status, code.reason, str(error), error.errors)
    known = error if isinstance(error, KatibError) else shortage_of(error)
    detail = "the server's log says more" if known is None else str(known)
    return problem(code.http_status, code.reason, detail)


def error_of(body: dict[str, Any], status: int) -> KatibError:
    """Return the error that a problem body stands for.

    Reasons without a class of their own, such as those of the framework, become the class with the nearest meaning.
    """
    reason, detail = (
        str(body.get("reason", "")),
        str(body.get("detail") or body.get("title") or f"HTTP status {status}"),
    )
    errors = tuple(
        FieldError(str(e.get("path")), str(e.get("cause")), str(e.get("remedy")), str(e.get("origin")))
        for e in body.get("errors") or ()
    )
    if errors:
        return InvalidError(errors)
    for cls, code in ERROR_CODES.items():
        if code.reason == reason and cls is not InvalidError:
            return cls(detail)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        transient = status in (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
        return UnavailableError(detail) if transient else InternalError(detail)
    return KatibError(detail)


def render(body: Problem) -> tuple[int, bytes, dict[str, str]]:
    """Return status, bytes and headers of a problem's response."""
    headers = {"content-type": MEDIA_TYPE, "cache-control": "no-store"}
    status = int(body["status"])
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["retry-after"] = str(_RETRY_AFTER_SECONDS)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = 'Bearer realm="katib"'
    return status, json.dumps(body).encode(), headers
