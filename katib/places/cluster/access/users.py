"""A cluster shared by many users, each with the rights that the API server grants that user.

    user --> TuningService --> GuardedConnection -- may this user? --> AccessReviews --> API server
                                      |
                                      +-- yes: the request, with this server's credentials --> API server

Every request is authorized, including indirect ones, such as reading the pods of a trial that does not progress or the
ConfigMap of a template; a request that `kubectl` would refuse is refused here, too. This server's own rights limit
those of every user.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.objects import Key, Kind, Object, ObjectList
from katib.places.cluster.access.connect import connect
from katib.places.cluster.access.tuning_service import NAMESPACE, open_metrics, service_on
from katib.places.cluster.client import (
    KEPT_SECONDS,
    AccessReviews,
    ApiConnection,
    GuardedConnection,
    NotPermittedError,
    OpenStreams,
    RbacSubject,
    RequestInfo,
)
from katib.places.cluster.store import KubernetesStore, objects
from katib.service.tuning.service import TuningService
from katib.service.tuning.users import User

_AT_ONCE = 8
"""Concurrent namespace listings; listing hundreds one by one takes seconds."""

audit = logging.getLogger("katib.audit")
"""Records every write on behalf of a user: the API server's audit log names only this server."""


@dataclass(frozen=True, slots=True)
class UserClusters:
    """An open cluster for many users.

    Attributes:
        service_of: Returns the tuning service for a user.
        host: Address of the API server.
    """

    service_of: Callable[[User], TuningService]
    host: str


@contextmanager
def open_users(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    db_manager: str = "",
    kept_seconds: float = KEPT_SECONDS,
) -> Iterator[UserClusters]:
    """Open a cluster for many users.

    Args:
        kubeconfig: As in `katib.places.cluster.access.connect.connect`; the identity of this server.
        context: As in `katib.places.cluster.access.connect.connect`.
        db_manager: Address of the DB manager; discovered if empty.
        kept_seconds: How long a decision about a right is cached, and how often open streams are reauthorized.

    Raises:
        KatibError: As `katib.places.cluster.access.connect.connect` does.
    """
    clock = SystemClock()
    cluster = connect(kubeconfig, context, user_agent="katib-server")
    with (
        cluster.connection as connection,
        open_metrics(cluster, db_manager, clock) as observations,
        OpenStreams(kept_seconds) as streams,
    ):
        reviews = AccessReviews(connection, kept_seconds=kept_seconds)
        core_store = KubernetesStore(connection)

        def namespaces() -> list[str]:
            return [Key.of(namespace).name for namespace in core_store.list(NAMESPACE).items]

        def service_of(user: User) -> TuningService:
            guarded = GuardedConnection(
                connection, partial(_permit, reviews, RbacSubject(user.name, user.groups)), streams
            )
            return service_on(
                replace(cluster, connection=guarded),
                observations,
                clock,
                scoped=partial(UserStore, guarded, user.name, namespaces),
                core_store=core_store,
            )

        yield UserClusters(service_of, connection.host)


def _permit(reviews: AccessReviews, subject: RbacSubject, request: RequestInfo) -> None:
    try:
        reviews.permit(subject, request)
    except NotPermittedError:
        if request.is_write:
            about = {"user": subject.name, "verb": request.verb, "object": request.subject}
            audit.info("Refused to write for a user", extra=about)
        raise


class UserStore(KubernetesStore):
    """Objects of a cluster with the rights of a user; writes are recorded in the audit log.

    If a user may not list a kind in all namespaces, a list of all namespaces holds the objects of the namespaces that
    the user may list; its revision is then empty, as it cannot be watched from.
    """

    def __init__(
        self, connection: ApiConnection, user: str, namespaces: Callable[[], Iterable[str]], namespace: str | None
    ) -> None:
        super().__init__(connection, namespace=namespace)
        self._user = user
        self._namespaces = namespaces

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        owner_uid: str | None = None,
    ) -> ObjectList:
        in_one = partial(super().list, kind, labels=labels, owner_uid=owner_uid)
        namespace = namespace or self._namespace
        try:
            return in_one(namespace)
        except NotPermittedError:
            if namespace or kind == NAMESPACE:
                raise

        def found_in(name: str) -> tuple[Object, ...]:
            with suppress(NotPermittedError):
                return in_one(name).items
            return ()

        with ThreadPoolExecutor(_AT_ONCE, "namespaces") as pool:
            found = [obj for items in pool.map(found_in, self._namespaces()) for obj in items]
        return ObjectList(objects.in_order(found), "")

    def create(self, obj: Object) -> Object:
        return self._noted("create", super().create(obj))

    def update(self, obj: Object) -> Object:
        return self._noted("update", super().update(obj))

    def patch(self, obj: Object, changes: Mapping[str, Any]) -> Object:
        return self._noted("patch", super().patch(obj, changes))

    def delete(self, kind: Kind, key: Key, *, uid: str | None = None) -> None:
        super().delete(kind, key, uid=uid)
        self._note("delete", kind, key)

    def _noted(self, verb: str, stored: Object) -> Object:
        self._note(verb, Kind.of(stored), Key.of(stored))
        return stored

    def _note(self, verb: str, kind: Kind, key: Key) -> None:
        about = {"user": self._user, "verb": verb, "object": f"{kind.kind} {key}"}
        audit.info("Wrote for a user", extra=about)
