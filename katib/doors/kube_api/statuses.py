"""Errors as Kubernetes' Status objects with a reason, and a cause for each field. Pure.

The content of an error is decided once, in the problem that REST returns; this module only converts it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from katib.doors.kube_api.resources import ServedResource
from katib.doors.rest.problems import Problem, problem_of
from katib.errors import KatibError
from katib.model.wording import counted

Json = dict[str, Any]

_REASONS: Mapping[int, str] = {410: "Expired", 413: "RequestEntityTooLarge", 422: "Invalid", 500: "InternalError"}
"""Reasons that differ from HTTP's."""

_MISSING = ("-missing", "-empty")
_RETRY_SECONDS = 2


class StatusError(KatibError):
    """A refusal specific to this protocol, such as of a media type.

    Attributes:
        details: In Kubernetes' form.
        reason: In Kubernetes' terms.
    """

    def __init__(self, code: int, message: str, details: Json | None = None, *, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.details = details or {}
        self.reason = reason or _reason(code)


def status_of(error: BaseException, resource: ServedResource | None = None, name: str = "") -> Json:
    """Return the Status of an error; a foreign exception is not disclosed."""
    if isinstance(error, StatusError):
        return _status(error.code, error.reason, str(error), error.details)
    return status_of_problem(problem_of(error), resource, name)


def status_of_problem(problem: Problem, resource: ServedResource | None = None, name: str = "") -> Json:
    code, reason, message = problem["status"], problem["reason"], problem["detail"]
    if reason != "AlreadyExists":
        reason = _reason(code)
    details = _details(resource, name)
    if errors := problem["errors"]:
        lines = [f"{error['path']}: {error['cause']}; {error['remedy']}" for error in errors]
        details["causes"] = [
            {
                "reason": "FieldValueRequired" if error["origin"].endswith(_MISSING) else "FieldValueInvalid",
                "message": f"{error['cause']}; {error['remedy']}",
                "field": error["path"],
            }
            for error in errors
        ]
        message = "\n".join(lines)
        if resource is not None:
            details["kind"] = resource.kind.kind  # an API server has the kind in this Status only
            subject = f'{resource.kind.kind}{f".{resource.group}" if resource.group else ""} "{name}"'
            message = f"{subject} is invalid: {lines[0] if len(lines) == 1 else '[' + ', '.join(lines) + ']'}"
    elif resource is not None and code == HTTPStatus.NOT_FOUND:
        message = f'{resource.title} "{name}" not found'
    elif resource is not None and reason == "AlreadyExists":
        message = f'{resource.title} "{name}" already exists'
    if code == HTTPStatus.SERVICE_UNAVAILABLE:
        details["retryAfterSeconds"] = _RETRY_SECONDS
    return _status(code, reason, message, details)


def success(resource: ServedResource, name: str, uid: str) -> Json:
    """Return the Status for a deleted object."""
    details = {**_details(resource, name), "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def render(problem: Problem) -> tuple[int, bytes, dict[str, str]]:
    """Return status, bytes and headers of the response to a request that is refused before it is read."""
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    return problem["status"], json.dumps(status_of_problem(problem)).encode(), headers


def bad_request(message: str) -> StatusError:
    return StatusError(400, message)


def conflict(resource: ServedResource, name: str, causes: Sequence[str]) -> StatusError:
    """Return the error for an object that changed since it was read, or with fields of other managers."""
    message = f'Operation cannot be fulfilled on {resource.title} "{name}": {"; ".join(causes)}'
    return StatusError(409, message, details=_details(resource, name))


def field_conflict(resource: ServedResource, name: str, causes: Sequence[tuple[str, str]]) -> StatusError:
    """Return the error for fields of other managers, given the conflict and the path of each."""
    listed = [{"reason": "FieldManagerConflict", "message": what, "field": path} for what, path in causes]
    lines = "; ".join(f"{what}: {path}" for what, path in causes)
    count = counted(len(causes), "conflict")
    return StatusError(
        409, f'Apply of {resource.title} "{name}" failed with {count}: {lines}', details={"causes": listed}
    )


def _reason(code: int) -> str:
    return _REASONS.get(code) or HTTPStatus(code).phrase.replace(" ", "")


def _details(resource: ServedResource | None, name: str) -> Json:
    if resource is None:
        return {}
    return {key: text for key, text in (("name", name), ("group", resource.group), ("kind", resource.plural)) if text}


def _status(code: int, reason: str, message: str, details: Json) -> Json:
    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return {**status, "reason": reason, **({"details": details} if details else {}), "code": code}
