"""Authorization of other users by the API server, cached for some seconds.

The question is the one that the API server would decide if the user sent the request: verb, group, version, resource,
subresource, namespace and name. Asking requires the right to create `subjectaccessreviews`, which, unlike
impersonation, gives no power to act as another user.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from katib.errors import ForbiddenError, UnavailableError
from katib.places.cluster.client.answers import denial
from katib.places.cluster.client.connection import ApiConnection
from katib.places.cluster.client.requests import RequestInfo

KEPT_SECONDS = 5.0
"""How long a decision is cached, and so how late a granted or revoked right takes effect."""
MOST_KEPT = 10_000
"""Cached decisions; a listing of all namespaces needs one for each."""

_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_SERVICE_ACCOUNT = "system:serviceaccount:"


class NotPermittedError(ForbiddenError):
    """The user on whose behalf the request is made may not do this."""


@dataclass(frozen=True, slots=True)
class RbacSubject:
    """A user in RBAC terms.

    Attributes:
        groups: Groups from a trusted source, beside those that Kubernetes gives to every user.
    """

    name: str
    groups: tuple[str, ...] = ()

    def all_groups(self) -> tuple[str, ...]:
        """Return all groups of the user, as after a login at the API server."""
        return ("system:authenticated", *_groups_of_service_account(self.name), *self.groups)


class AccessReviews:
    """Authorizes users' requests. Thread-safe.

    Args:
        connection: Connection of an account that may create `subjectaccessreviews`.
        kept_seconds: How long a decision is cached.
        monotonic: Monotonic clock in seconds.
    """

    def __init__(
        self,
        connection: ApiConnection,
        *,
        kept_seconds: float = KEPT_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._kept_seconds = kept_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: dict[tuple[RbacSubject, RequestInfo], tuple[bool, float]] = {}

    def permit(self, subject: RbacSubject, request: RequestInfo) -> None:
        """Return if a user may send a request.

        Raises:
            NotPermittedError: The user may not.
            UnavailableError: The API server does not answer.
        """
        if not self._allows(subject, request):
            raise NotPermittedError(denial(subject.name, request))

    def _allows(self, subject: RbacSubject, request: RequestInfo) -> bool:
        if not _is_about_objects(request):
            return False
        question = subject, request
        known = self._known.get(question)
        if known is not None and self._monotonic() < known[1]:
            return known[0]
        asked = self._monotonic()  # a decision is as old as its question
        try:
            answer = self._connection.request("POST", _PATH, body=_review(subject, request))
        except ForbiddenError as error:
            raise UnavailableError(f"access of {subject.name} cannot be checked: {error}") from error
        allowed = (answer.get("status") or {}).get("allowed") is True
        with self._lock:
            self._known.pop(question, None)  # keeps the entries in order of age
            self._known[question] = allowed, asked + self._kept_seconds
            if len(self._known) > MOST_KEPT:
                del self._known[next(iter(self._known))]
        return allowed


def _is_about_objects(request: RequestInfo) -> bool:
    """Return whether a request is for objects, and its path matches the authorized attributes.

    Users may request nothing else. Object names contain no slash; a path with one would reach another object than the
    one authorized.
    """
    parts = (request.namespace, request.resource, request.name, request.subresource)
    return bool(request.resource) and not any(
        part in {".", ".."} or "/" in part or "%" in part or not part.isprintable() for part in parts
    )


def _review(subject: RbacSubject, request: RequestInfo) -> dict[str, Any]:
    attributes = {
        "namespace": request.namespace,
        "verb": request.verb,
        "group": request.api_group,
        "version": request.api_version.rpartition("/")[2],
        "resource": request.resource,
        "subresource": request.subresource,
        "name": request.name,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": subject.name,
            "groups": list(subject.all_groups()),
            "resourceAttributes": {name: value for name, value in attributes.items() if value},
        },
    }


def _groups_of_service_account(name: str) -> tuple[str, ...]:
    namespace, colon, account = name.removeprefix(_SERVICE_ACCOUNT).partition(":")
    if not name.startswith(_SERVICE_ACCOUNT) or not colon or not account:
        return ()
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}"
