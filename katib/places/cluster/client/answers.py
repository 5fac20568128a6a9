"""Mapping from responses of the API server to the tree of errors. Pure.

The class tells the caller how to proceed. The message is one line and keeps the server's words, since a webhook's
denial or a schema violation is written for the user.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from katib.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    FieldError,
    ForbiddenError,
    InvalidError,
    KatibError,
    KindNotInstalledError,
    NotFoundError,
    UnavailableError,
    invalid,
    one_line,
)
from katib.places.cluster.client.requests import RequestInfo

_RBAC_DENIAL = re.compile(r"\bcannot \w+ (resource|path)\b")
_OTHER_UID = re.compile(r"UID in (the )?precondition")
_WEBHOOK_DENIAL = re.compile(r'admission webhook "[^"]*" denied the request')
_TOO_LARGE = re.compile(r"etcdserver: request is too large|(?i:request entity too large)")
"""Matches an object that is too large for the store or the API server; etcd's message comes as a server error."""
_NO_REMEDY = "change it accordingly"
_TERMINATING = "NamespaceTerminating"


class NotServedError(KindNotInstalledError):
    """The path is not served: the kind is not installed, or its definition was deleted."""


class NamespaceGoneError(NotFoundError):
    """The namespace does not exist, or is being deleted and accepts no new objects."""


class NotThisObjectError(NotFoundError):
    """Another object has the name now: its uid is not the requested one."""


def error_of(status: int, data: bytes, request: RequestInfo) -> KatibError:
    """Return the error for a response with status 400 or above."""
    answer = _status_object(data)
    message = one_line(answer.get("message") or data.decode(errors="replace").strip() or f"HTTP status {status}")
    make = _MEANINGS.get(status)
    if make is not None:
        return make(answer, message, request)
    if _TOO_LARGE.search(message):
        remedy = "make it smaller, such as by fewer parameters or a shorter template"
        return invalid(request.subject, message, remedy, "object-too-large")
    if status == 429 or status >= 500:  # noqa: PLR2004 - HTTP's own numbers
        return UnavailableError(
            f"{request.subject}: the API server answers {status}, {message}; it is tried again later"
        )
    return _invalid(answer, message, request)


def watch_error_of(obj: Mapping[str, Any], request: RequestInfo) -> KatibError:
    code = obj.get("code")
    return error_of(code if isinstance(code, int) else 500, json.dumps(obj).encode(), request)


def _status_object(data: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(data)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) and answer.get("kind") == "Status" else {}


def _not_found(answer: dict[str, Any], message: str, request: RequestInfo) -> KatibError:
    details = answer.get("details") or {}
    if details.get("kind") == "namespaces" and request.resource != "namespaces":
        return NamespaceGoneError(f"namespace {request.namespace}: not found; create it")
    if not details.get("name") and not (request.name and details.get("kind")):
        return NotServedError(f"{request.subject}: the API server serves no such objects; install the kind")
    return NotFoundError(f"{request.subject}: not found, {message}; create it or fix the name")


def _conflict(answer: dict[str, Any], message: str, request: RequestInfo) -> KatibError:
    if answer.get("reason") == "AlreadyExists":
        return AlreadyExistsError(f"{request.subject}: exists; delete it or choose another name")
    if _OTHER_UID.search(message):
        return NotThisObjectError(f"{request.subject}: another object has its name, {message}; read the new one")
    return ConflictError(f"{request.subject}: {message}; read it again")


def _forbidden(answer: dict[str, Any], message: str, request: RequestInfo) -> KatibError:
    if any(cause.get("reason") == _TERMINATING for cause in _causes(answer)):
        return NamespaceGoneError(f"namespace {request.namespace}: is being deleted; use another one")
    if _RBAC_DENIAL.search(message):
        found = re.search(r'User "([^"]*)"', message)
        return ForbiddenError(denial(found[1] if found else "the user", request))
    return ForbiddenError(f"{request.subject}: {message}; ask who runs the cluster to allow it")


def denial(user: str, request: RequestInfo) -> str:
    """Return the message for a request that a user's rights do not allow."""
    return f"{request.subject}: {user} may not {request.verb} it; add the rule {request.rule} to a role of that user"


def _unauthorized(_answer: dict[str, Any], message: str, request: RequestInfo) -> KatibError:
    return ForbiddenError(
        f"{request.subject}: the API server does not know who asks ({message}); log in again, or fix the user of the "
        "kubeconfig context"
    )


def _invalid(answer: dict[str, Any], message: str, request: RequestInfo) -> KatibError:
    causes = [cause for cause in _causes(answer) if cause.get("message")]
    if not causes:
        return invalid(request.subject, message, _NO_REMEDY, _kebab(answer.get("reason") or "Invalid"))
    is_ours = _WEBHOOK_DENIAL.match(message) is not None
    errors = (
        FieldError(
            cause.get("field") or request.subject,
            *_cause_and_remedy(one_line(cause["message"]), has_remedy=is_ours),
            _kebab(cause.get("reason") or answer.get("reason") or "Invalid"),
        )
        for cause in causes
    )
    return InvalidError(dict.fromkeys(errors))  # the server may repeat a cause


_MEANINGS = {
    400: _invalid,
    401: _unauthorized,
    403: _forbidden,
    404: _not_found,
    409: _conflict,
    410: lambda _answer, message, request: ExpiredError(f"{request.subject}: {message}; list again"),
    422: _invalid,
}


def _cause_and_remedy(message: str, *, has_remedy: bool) -> tuple[str, str]:
    """Split a webhook's message at its last semicolon, which separates the remedy in messages of Katib's webhooks."""
    cause, semicolon, remedy = message.rpartition("; ")
    return (cause, remedy) if has_remedy and semicolon else (message, _NO_REMEDY)


def _causes(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return (answer.get("details") or {}).get("causes") or []


def _kebab(reason: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", reason).lower()
