"""Admission reviews: the API server asks about one request, a handler answers. Pure: bytes in, bytes out.

Reads `admission.k8s.io` `v1` and `v1beta1`, and answers in the version it was asked in.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

from katib.errors import FieldError, InvalidError, KatibError, code_of, invalid
from katib.model.json_values import same_json

GROUP = "admission.k8s.io"
VERSIONS = ("v1", "v1beta1")

_MAX_WARNING = 256
"""The API server truncates longer warnings if there are many."""


@dataclass(frozen=True, slots=True)
class AdmissionReview:
    """An admission request.

    Attributes:
        uid: Identifies the request, not the object.
        operation: `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
        namespace: Empty for cluster-scoped objects.
        name: Empty while a name is still to be generated.
        object: The object as it would be stored; empty for `DELETE`.
        old_object: The stored object; empty for `CREATE`.
        dry_run: Whether nothing will be stored, so that side effects are forbidden, too.
        resource: Plural name of the kind.
        group: API group of the kind.
        subresource: Such as `status`; empty for the object itself.
        api_version: Version of the review, and so of the response.
    """

    uid: str
    operation: str
    namespace: str = ""
    name: str = ""
    object: Mapping[str, Any] = field(default_factory=dict)
    old_object: Mapping[str, Any] = field(default_factory=dict)
    user: str = ""
    dry_run: bool = False
    resource: str = ""
    subresource: str = ""
    kind: str = ""
    group: str = ""
    api_version: str = f"{GROUP}/v1"


@dataclass(frozen=True, slots=True)
class AdmissionResponse:
    """The response to an admission request.

    Attributes:
        message: Cause of a refusal, as shown to the user; may have several lines.
        code: HTTP status of the refusal.
        reason: Reason in Kubernetes' terms, such as `Invalid`; may be empty.
        errors: Errors of single fields, which clients list one by one.
        patched: The object after the change; None for no change.
        warnings: Lines shown to the user beside the outcome.
    """

    allowed: bool
    message: str = ""
    code: int = 0
    reason: str = ""
    errors: tuple[FieldError, ...] = ()
    patched: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()


Handler = Callable[[AdmissionReview], AdmissionResponse]
"""Decides about one request; called from many threads. A `KatibError` is a refusal with its message."""

ALLOWED = AdmissionResponse(allowed=True)


def refused(error: KatibError) -> AdmissionResponse:
    """Return the verdict that shows an error to the user."""
    code = code_of(error)
    fields = error.errors if isinstance(error, InvalidError) else ()
    return AdmissionResponse(
        allowed=False, message=str(error), code=code.http_status, reason=code.reason, errors=fields
    )


def decode_review(body: bytes) -> AdmissionReview:
    """Read the body of a request.

    Raises:
        InvalidError: It is not an admission review.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _invalid("it is not JSON") from error
    version = data.get("apiVersion", "") if isinstance(data, dict) else ""
    if version not in [f"{GROUP}/{known}" for known in VERSIONS]:
        raise _invalid(f"it is no {GROUP} review of version {' or '.join(VERSIONS)}")
    request = data.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise _invalid("it has no request with a uid")
    return AdmissionReview(
        uid=request["uid"],
        operation=_text(request, "operation"),
        namespace=_text(request, "namespace"),
        name=_text(request, "name"),
        object=_mapping(request, "object"),
        old_object=_mapping(request, "oldObject"),
        user=_text(_mapping(request, "userInfo"), "username"),
        dry_run=request.get("dryRun") is True,
        resource=_text(_mapping(request, "resource"), "resource"),
        subresource=_text(request, "subResource"),
        kind=_text(_mapping(request, "kind"), "kind"),
        group=_text(_mapping(request, "kind"), "group"),
        api_version=version,
    )


def encode_answer(review: AdmissionReview, verdict: AdmissionResponse) -> bytes:
    response: dict[str, Any] = {"uid": review.uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        response["status"] = _status(review, verdict)
    elif verdict.patched is not None and (patch := diff(review.object, verdict.patched)):
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    if verdict.warnings and review.api_version == f"{GROUP}/v1":
        response["warnings"] = [_warning(text) for text in verdict.warnings]
    return json.dumps({"apiVersion": review.api_version, "kind": "AdmissionReview", "response": response}).encode()


def _status(review: AdmissionReview, verdict: AdmissionResponse) -> dict[str, Any]:
    """Return a refusal in the form of Kubernetes' own validation, so that kubectl lists the fields one per line."""
    causes = [
        {"reason": error.origin, "field": error.path, "message": str(replace(error, path="")).removeprefix(": ")}
        for error in verdict.errors
    ]
    details = {"group": review.group, "kind": review.kind, "name": review.name, "causes": causes}
    status = {
        "status": "Failure",
        "code": int(verdict.code or HTTPStatus.FORBIDDEN),
        "reason": verdict.reason,
        "message": verdict.message,
        "details": details if causes else None,
    }
    return {name: value for name, value in status.items() if value}


def _warning(text: str) -> str:
    """Return text that fits into an HTTP header, which carries warnings."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_WARNING else f"{line[: _MAX_WARNING - 1]}…"


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    return value if isinstance(value, str) else ""


def _mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, dict) else {}


def _invalid(cause: str) -> InvalidError:
    return invalid("admission review", cause, "send what a Kubernetes API server sends", "review")


Operation = dict[str, Any]


def diff(old: Any, new: Any) -> list[Operation]:
    """Return the JSON patch operations from `old` to `new`; none if they are the same JSON value.

    Elements of lists are compared by position, after removing a common prefix and suffix.
    """
    return list(_diff(old, new, ""))


def _diff(old: Any, new: Any, path: str) -> Iterator[Operation]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        yield from _diff_maps(old, new, path)
    elif _is_list(old) and _is_list(new):
        yield from _diff_lists(old, new, path)
    elif not same_json(old, new):
        yield {"op": "replace", "path": path, "value": new}


def _diff_maps(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Operation]:
    for key, value in old.items():
        if key in new:
            yield from _diff(value, new[key], f"{path}/{_escaped(key)}")
        else:
            yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
    for key, value in new.items():
        if key not in old:
            yield {"op": "add", "path": f"{path}/{_escaped(key)}", "value": value}


def _diff_lists(old: Sequence[Any], new: Sequence[Any], path: str) -> Iterator[Operation]:
    shorter = min(len(old), len(new))
    start = _common(old, new, shorter)
    tail = _common(old[::-1], new[::-1], shorter - start)
    kept = shorter - start - tail
    for i in range(start, start + kept):
        yield from _diff(old[i], new[i], f"{path}/{i}")
    at = start + kept
    for i in reversed(range(at, len(old) - tail)):
        yield {"op": "remove", "path": f"{path}/{i}"}
    for i in range(at, len(new) - tail):
        yield {"op": "add", "path": f"{path}/{i}", "value": new[i]}


def _common(old: Sequence[Any], new: Sequence[Any], limit: int) -> int:
    """Return the length of the common prefix, at most `limit`."""
    return next((i for i in range(limit) if not same_json(old[i], new[i])), limit)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
