"""Parameters of a list or a watch, refused in the same cases as by an API server. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from katib.doors.kube_api.bodies import flag, number
from katib.doors.kube_api.statuses import StatusError, bad_request
from katib.errors import ExpiredError

_LONGEST_REVISION = 18
EXACT, NOT_OLDER = "Exact", "NotOlderThan"


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Options of a list or a watch.

    Attributes:
        since: `resourceVersion`; empty for any.
        match: `resourceVersionMatch`: `Exact`, `NotOlderThan` or empty.
        token: `continue`; empty for the first page.
        limit: Maximum size of a page; 0 for all objects.
        initial: Whether a watch begins with the existing objects; None to derive it from `since`.
        seconds: Duration of a watch; None for half an hour or more.
    """

    since: str = ""
    match: str = ""
    token: str = ""
    limit: int = 0
    initial: bool | None = None
    bookmarks: bool = False
    seconds: int | None = None

    @property
    def begins_with_all(self) -> bool:
        """Whether a watch begins with the existing objects."""
        return self.since in ("", "0") if self.initial is None else self.initial

    def require_known(self, revision: str) -> None:
        """Raise unless a store at a revision can answer.

        Raises:
            ExpiredError: An older state is requested, and only the newest is kept.
            StatusError: A newer state is requested.
        """
        if not self.since or self.token:
            return
        if int(self.since) > int(revision):
            message = f"Timeout: Too large resource version: {self.since}, current: {revision}"
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            raise StatusError(504, message, {"causes": [cause], "retryAfterSeconds": 1}, reason="Timeout")
        if self.match == EXACT and int(self.since) < int(revision):
            raise ExpiredError(f"revision {self.since} is not kept, only {revision}; list without resourceVersion")


class _Cause(NamedTuple):
    """A refused parameter."""

    field: str
    cause: str
    remedy: str
    reason: str = "FieldValueForbidden"


def list_options_of(query: Mapping[str, str], *, is_watch: bool) -> ListOptions:
    """Return the options of a request.

    Raises:
        StatusError: A parameter has an invalid value, or conflicts with another one.
    """
    if causes := list(_causes(query, is_watch=is_watch)):
        lines = [f"{each.field}: {each.cause}; {each.remedy}" for each in causes]
        text = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
        listed = [
            {"reason": each.reason, "message": f"{each.cause}; {each.remedy}", "field": each.field} for each in causes
        ]
        details = {"group": "meta.k8s.io", "kind": "ListOptions", "causes": listed}
        raise StatusError(422, f'ListOptions.meta.k8s.io "" is invalid: {text}', details)
    since = query.get("resourceVersion", "")
    if since and not (since.isascii() and since.isdecimal() and len(since) <= _LONGEST_REVISION):
        raise bad_request(f"resourceVersion: {since[:40]!r} is not a revision; send one that this server returned")
    return ListOptions(
        since,
        query.get("resourceVersionMatch", ""),
        query.get("continue", ""),
        number(query, "limit") or 0,
        flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None,
        flag(query, "allowWatchBookmarks"),
        number(query, "timeoutSeconds"),
    )


def _causes(query: Mapping[str, str], *, is_watch: bool) -> Iterator[_Cause]:
    field, match, since = "resourceVersionMatch", query.get("resourceVersionMatch", ""), query.get("resourceVersion")
    known = (NOT_OLDER,) if is_watch else (EXACT, NOT_OLDER)
    if "sendInitialEvents" in query and not is_watch:
        yield _Cause("sendInitialEvents", "it is forbidden for a list", "remove it, or add watch=true")
    if is_watch and "sendInitialEvents" in query and match != NOT_OLDER:
        yield _Cause(field, f"sendInitialEvents requires {NOT_OLDER}", f"send {field}={NOT_OLDER}")
    elif is_watch and match and "sendInitialEvents" not in query:
        yield _Cause(field, "it is forbidden for a watch without sendInitialEvents", "remove it")
    elif not is_watch and match and not since:
        yield _Cause(field, "it is forbidden without resourceVersion", "send resourceVersion, too, or remove it")
    if query.get("continue") and (match or is_watch):
        yield _Cause("continue" if is_watch else field, "it is forbidden in this request", "remove it")
    if match and match not in known:
        remedy = f"use {' or '.join(known)}, or remove it"
        yield _Cause(field, f"{match[:40]!r} is not supported", remedy, "FieldValueNotSupported")
    if not is_watch and (match, since) == (EXACT, "0"):
        yield _Cause(field, f'{EXACT} is forbidden for resourceVersion "0"', f"use {NOT_OLDER}")
