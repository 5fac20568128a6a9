"""Objects of a suggestion in the cluster: creating missing ones, removing unneeded ones.

Existing objects are read from caches. Creating an existing object is a conflict, not a duplicate, so a stale cache
costs a request and does no harm. Objects of the same name with another owner are never touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from katib.engine.controllers.kinds import POD
from katib.engine.runtime.informer import Informer
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    TerminalError,
)
from katib.model.types import Suggestion
from katib.places.cluster.services.manifests import NOTHING, manifests
from katib.places.cluster.services.plan import (
    DEPLOYMENT,
    DEPLOYMENT_LABEL,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    SUGGESTION_LABEL,
    ClusterPlan,
)
from katib.places.cluster.services.trouble import ReadinessProblem

_WATCHED = frozenset({DEPLOYMENT, SERVICE})
_RIGHTS = (ROLE_BINDING, ROLE, SERVICE_ACCOUNT)

_log = logging.getLogger(__name__)


class BlockedError(Exception):
    """An object cannot be created now; it may be possible later.

    Args:
        may_pass: Whether it can end without a fix, as in `ReadinessProblem`.
    """

    def __init__(self, words: str, *, may_pass: bool = False) -> None:
        super().__init__(words)
        self.trouble = ReadinessProblem(words, may_pass)


@dataclass(frozen=True, slots=True)
class LogEndpoint:
    """The observation log, as early stopping services reach it.

    Attributes:
        address: Address for reading metrics.
        reader_variables: Returns the credentials for a namespace, as environment variables.
    """

    address: str
    reader_variables: Callable[[str], Mapping[str, str]] = lambda _namespace: NOTHING


@dataclass(frozen=True, slots=True)
class ServiceObjects:
    """Creates and removes the objects that serve suggestions.

    Attributes:
        grpc_probes: Whether containers get gRPC probes.
        reader_variables: Returns the credentials of a namespace's early stopping services for the DB manager.
    """

    store: ObjectStore
    deployments: Informer[Object]
    services: Informer[Object]
    all_pods: ObjectStore
    grpc_probes: bool
    reader_variables: Callable[[str], Mapping[str, str]]

    def deployment(self, key: Key, owner_uid: str) -> Object | None:
        """Return the Deployment of a suggestion, None if there is none or it is being deleted."""
        return _usable(self.deployments.get(key), owner_uid)

    def address(self, key: Key, owner_uid: str, port: int) -> str:
        """Return the address of a port of the suggestion's Service, valid inside and outside the cluster's pods."""
        service = _usable(self.services.get(key), owner_uid)
        cluster_ip = "" if service is None else (service.get("spec") or {}).get("clusterIP", "")
        if not cluster_ip:
            return ""
        if cluster_ip == "None":
            return f"{key.name}.{key.namespace}:{port}"
        return f"[{cluster_ip}]:{port}" if ":" in cluster_ip else f"{cluster_ip}:{port}"

    def are_there(self, key: Key, owner_uid: str) -> bool:
        """Return whether the caches hold the Deployment and the Service of a suggestion."""
        return self.deployment(key, owner_uid) is not None and _usable(self.services.get(key), owner_uid) is not None

    def create(self, suggestion: Suggestion, plan: ClusterPlan) -> None:
        """Create missing objects; existing ones are not changed.

        Raises:
            BlockedError: Creation is blocked for now: by a right, a quota, an object that is being deleted or foreign.
            TerminalError: The API server refuses an object as it is.
        """
        variables = NOTHING if plan.early_stopping is None else self.reader_variables(suggestion.namespace)
        for obj in manifests(suggestion, plan, grpc_probes=self.grpc_probes, reader_variables=variables):
            kind, key = Kind.of(obj), Key.of(obj)
            try:
                self.store.create(obj)
            except AlreadyExistsError:
                self._accept(kind, key, suggestion)
            except (ForbiddenError, NotFoundError) as error:  # not found: the namespace
                used_up = "exceeded quota" in str(error)
                raise BlockedError(f"{kind.kind} {key} cannot be created: {error}", may_pass=used_up) from error
            except InvalidError as error:
                cause = "; ".join(map(str, error.errors)) or str(error)
                message = f"{kind.kind} {key} is refused: {cause}; fix its entry in the KatibConfig"
                raise TerminalError(message) from error

    def remove(self, namespace: str, name: str, owner_uid: str, *, thorough: bool = False) -> None:
        """Remove all objects except volumes. Cheap if there are none; idempotent.

        Args:
            owner_uid: Uid of the suggestion; objects of others stay.
            thorough: Whether to look in the store even if the caches, which may lag, show nothing.
        """
        key = Key(namespace, name)
        deployment = _removable(self.deployments.get(key), owner_uid)
        service = _removable(self.services.get(key), owner_uid)
        if deployment is None and service is None and not thorough:
            return
        if thorough or (deployment is not None and _account(deployment) == name):
            for kind in _RIGHTS:
                self._delete_ours(kind, key, owner_uid)
        # The Deployment is deleted last: while it exists, the next attempt knows that there is something to remove.
        for kind, obj in ((SERVICE, service), (DEPLOYMENT, deployment)):
            if obj is not None:
                self._delete(kind, key, obj["metadata"]["uid"])
            elif thorough:
                self._delete_ours(kind, key, owner_uid)

    def pods(self, namespace: str, name: str) -> tuple[Object, ...]:
        return self.all_pods.list(POD, namespace, labels={DEPLOYMENT_LABEL: name}).items

    def _accept(self, kind: Kind, key: Key, suggestion: Suggestion) -> None:
        """Check that an existing object is usable, and make it visible to the caches."""
        try:
            found = self.store.get(kind, key)
        except NotFoundError as error:
            raise BlockedError(f"{kind.kind} {key} was just removed") from error
        except ForbiddenError as error:
            raise BlockedError(f"{kind.kind} {key} exists and cannot be read: {error}") from error
        if found["metadata"].get("deletionTimestamp"):
            words = f"{kind.kind} {key} of an earlier experiment is still being removed"
            raise BlockedError(words, may_pass=True)
        if not _is_usable(found, suggestion.metadata.uid):
            raise BlockedError(f"{kind.kind} {key} belongs to something else; remove it or rename the experiment")
        labels = found["metadata"].get("labels") or {}
        if kind not in _WATCHED or SUGGESTION_LABEL in labels:
            return
        try:  # another controller created it, such as Katib's; the watch shows it only with the label
            self.store.patch(found, {"metadata": {"labels": {SUGGESTION_LABEL: suggestion.name}}})
        except (ConflictError, NotFoundError, ForbiddenError) as error:
            raise BlockedError(f"{kind.kind} {key} cannot be labelled {SUGGESTION_LABEL}: {error}") from error

    def _delete_ours(self, kind: Kind, key: Key, owner_uid: str) -> None:
        try:
            found = self.store.get(kind, key)
        except (NotFoundError, ForbiddenError):
            return
        if owner_uid in _owners(found):
            self._delete(kind, key, found["metadata"]["uid"])

    def _delete(self, kind: Kind, key: Key, uid: str) -> None:
        try:
            with suppress(NotFoundError):
                self.store.delete(kind, key, uid=uid)
        except ForbiddenError as error:
            # It is deleted with its Suggestion eventually; the experiment itself need not fail for it.
            _log.warning("Object cannot be removed: %s", error, extra={"kind": kind.kind, "key": str(key)})


def _usable(obj: Object | None, owner_uid: str) -> Object | None:
    if obj is None or obj["metadata"].get("deletionTimestamp") or not _is_usable(obj, owner_uid):
        return None
    return obj


def _removable(obj: Object | None, owner_uid: str) -> Object | None:
    """Return an object if it belongs to the suggestion and is not being deleted."""
    return obj if obj is not None and owner_uid in _owners(obj) and _usable(obj, owner_uid) is not None else None


def _is_usable(obj: Object, owner_uid: str) -> bool:
    """Return whether an object belongs to the suggestion, or has no owner: created manually for it."""
    owners = _owners(obj)
    return not owners or owner_uid in owners


def _owners(obj: Object) -> frozenset[str]:
    references: list[dict[str, Any]] = obj["metadata"].get("ownerReferences") or []
    return frozenset(reference["uid"] for reference in references if reference.get("controller"))


def _account(deployment: Object) -> str:
    pod = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    return str(pod.get("serviceAccountName", ""))
