"""Object store of a cluster: the API server itself, with requests in plain JSON."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from katib.engine.runtime.objects import Key, Kind, Object, ObjectList
from katib.engine.stores import semantics
from katib.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    InternalError,
    InvalidError,
    NotFoundError,
)
from katib.places.cluster.client import (
    ApiConnection,
    ApiResource,
    NamespaceGoneError,
    NotServedError,
    NotThisObjectError,
)
from katib.places.cluster.store import objects
from katib.places.cluster.store.watch import KubernetesWatch

PAGE_SIZE = 100
"""Trials of 20 KB are 10 MB a page once decoded; one more request costs some milliseconds."""
METADATA_PAGE_SIZE = 500
_NAMES_TRIED = 5
_MERGE_PATCH = "application/merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Requests a list of objects of any kind with metadata only."""


def never(_kind: Kind) -> bool:
    return False


class KubernetesStore:
    """Object store over an API server: `katib.engine.runtime.objects.ObjectStore`. Stateless.

    Differs from the other stores, because Kubernetes does:

    - Timestamps are the server's. Creation times have a resolution of one second; a list orders objects within one by
      name.
    - Dependents of a deleted object are removed by the garbage collector, later and at revisions of their own.
    - The cluster decides whether a kind is namespaced; creating a namespaced object without a namespace is refused.
    - JSON passes through Go: `1.0` comes back as `1`, and a null in a map may be dropped. Empty lists and maps in the
      metadata are left out. Objects of built-in kinds come back with their defaults.
    - `metadata.managedFields` is never returned.
    - A status update of a built-in kind may change its metadata, too.
    - An expired revision is reported by the first `next` of a watch instead of by `watch`.
    - `list` with an owner fetches all objects and filters here: the server has no index of owners.
    - A write that changes nothing costs a request, though the server creates no revision.

    If the response to a write is lost, the request is sent again. An update may then conflict with its own first
    attempt and raise ConflictError, after which the caller reads its own write. A deletion that finds nothing the
    second time succeeded. A creation that finds the name taken reads the object: if it has every given field, it is
    returned. Otherwise, as when a webhook changed it, AlreadyExistsError is raised; callers must handle this error
    anyway, and find the object.

    Args:
        selectors: Label selectors that lists and watches of a kind always carry, to keep caches small.
        selector: Label selector of all other kinds.
        foreground: Returns whether a deleted object of a kind stays until its dependents are gone.
        namespace: Restricts lists and watches of namespaced kinds to this namespace.
    """

    def __init__(
        self,
        connection: ApiConnection,
        *,
        selectors: Mapping[Kind, str] | None = None,
        selector: str = "",
        foreground: Callable[[Kind], bool] = never,
        namespace: str | None = None,
    ) -> None:
        self.connection = connection
        self._selectors = dict(selectors or {})
        self._selector = selector
        self._foreground = foreground
        self._namespace = namespace

    def get(self, kind: Kind, key: Key) -> Object:
        with self._served(kind, key) as resource:
            return objects.shown(self.connection.request("GET", resource.path(*key)), kind)

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        owner_uid: str | None = None,
    ) -> ObjectList:
        query = self._query(kind, labels)
        with self._served(kind) as resource:
            path = resource.path(namespace or self._namespace or "")
            try:
                pages = list(self._pages(path, kind, query, PAGE_SIZE))
            except ExpiredError:  # between two pages; a single request for all cannot expire
                pages = list(self._pages(path, kind, query))
        found = (obj for page in pages for obj in page.items)
        if owner_uid is not None:
            found = (obj for obj in found if owner_uid in semantics.owner_uids(obj))
        return ObjectList(objects.in_order(found), pages[-1].resource_version)

    def pages(
        self, kind: Kind, namespace: str | None = None, *, labels: Mapping[str, str] | None = None
    ) -> Iterator[ObjectList]:
        """Yield the objects of a kind a page at a time, in order of their names."""
        with self._served(kind) as resource:
            path = resource.path(namespace or self._namespace or "")
            yield from self._pages(path, kind, self._query(kind, labels), PAGE_SIZE)

    def metadata_pages(self, kind: Kind) -> Iterator[ObjectList]:
        """Yield the objects of a kind a page at a time, with metadata only; see `pages`."""
        with self._served(kind) as resource:
            path = resource.path(self._namespace or "")
            yield from self._pages(path, kind, self._query(kind), METADATA_PAGE_SIZE, METADATA_ONLY)

    def create(self, obj: Object) -> Object:
        given = semantics.isolated(obj)
        if given["metadata"].get("name"):
            return self._create(given)
        for _ in range(_NAMES_TRIED - 1):
            with suppress(AlreadyExistsError):
                return self._create(semantics.isolated(obj))
        return self._create(given)

    def update(self, obj: Object) -> Object:
        # The status goes along although it is ignored: without it the server would record that its fields were
        # given up.
        return self._put(objects.to_update(obj))

    def patch(self, obj: Object, changes: Mapping[str, Any]) -> Object:
        body = objects.to_patch(obj, changes)
        kind, key = Kind.of(obj), Key.of(obj)
        uid = body["metadata"].get("uid")
        with self._served(kind, key, uid) as resource:
            try:
                answer = self.connection.request("PATCH", resource.path(*key), body=body, content_type=_MERGE_PATCH)
            except (ConflictError, InvalidError) as error:
                # To a patch, another object with the name is a conflict like any other.
                if uid is not None and self.get(kind, key)["metadata"]["uid"] != uid:
                    raise NotThisObjectError(str(error)) from error
                if isinstance(error, InvalidError):
                    raise
                raise _conflict(kind, key, body) from error
            return objects.shown(answer, kind)

    def update_status(self, obj: Object) -> Object:
        return self._put(objects.to_update(obj), "status")

    def delete(self, kind: Kind, key: Key, *, uid: str | None = None) -> None:
        options: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground" if self._foreground(kind) else "Background",
        }
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        doubt = threading.Event()
        with self._served(kind, key, uid) as resource:
            try:
                self.connection.request("DELETE", resource.path(*key), body=options, on_doubt=doubt.set)
            except NotFoundError as error:
                if not doubt.is_set() or isinstance(error, NotThisObjectError):
                    raise

    def watch(self, kind: Kind, since: str) -> KubernetesWatch:
        if not since.isascii() or not since.isdecimal():
            raise ExpiredError(f"{kind.kind}: revision {since!r} was never given; list again")
        with self._served(kind) as resource:
            path = resource.path(self._namespace or "")
            return KubernetesWatch(self.connection, kind, path, self._query(kind), since)

    def _pages(
        self, path: str, kind: Kind, query: Mapping[str, str], page_size: int | None = None, accept: str = ""
    ) -> Iterator[ObjectList]:
        for answer in self.connection.pages(path, query=query, page_size=page_size, accept=accept):
            items = tuple(objects.shown(item, kind) for item in answer.pop("items", None) or ())
            yield ObjectList(items, (answer.get("metadata") or {}).get("resourceVersion", ""))
            del items

    def _create(self, given: dict[str, Any]) -> Object:
        kind = Kind.of(given)
        with self._served(kind) as resource:
            body = objects.to_create(given, namespaced=resource.namespaced, has_status=resource.has_status)
            key, doubt = Key.of(body), threading.Event()
            path = resource.path(key.namespace)
            try:
                return objects.shown(self.connection.request("POST", path, body=body, on_doubt=doubt.set), kind)
            except AlreadyExistsError as error:
                known = self._mine(kind, key, body) if doubt.is_set() else None
                if known is not None:
                    return known
                raise AlreadyExistsError(f"{kind.kind} {key}: exists; delete it or choose another name") from error

    @contextmanager
    def _served(self, kind: Kind, key: Key | None = None, uid: str | None = None) -> Iterator[ApiResource]:
        """Yield how a kind is served, for a request about the object of a key, if given.

        Forgets a kind whose path the server no longer serves. Errors about a missing object have the wording of all
        stores, except if its namespace is gone.
        """
        resource = self.connection.discovery.resource(kind.api_version, kind.kind)
        if key is not None and (not key.name or (resource.namespaced and not key.namespace)):
            raise NotFoundError(f"{kind.kind} {key}: not found, the key is not complete; give namespace and name")
        try:
            yield resource
        except NotServedError:
            self.connection.discovery.forget(resource)
            raise
        except NotFoundError as error:
            if key is None or isinstance(error, NamespaceGoneError):
                raise
            is_other = isinstance(error, NotThisObjectError)
            cause = f"uid {uid} is gone, another object has its name; read the new one" if is_other else "not found"
            raise NotFoundError(f"{kind.kind} {key}: {cause}") from error

    def _query(self, kind: Kind, labels: Mapping[str, str] | None = None) -> dict[str, str]:
        text = objects.selector(self._selectors.get(kind, self._selector), labels=labels)
        return {"labelSelector": text} if text else {}

    def _put(self, body: dict[str, Any], subresource: str = "") -> Object:
        kind, key = Kind.of(body), Key.of(body)
        with self._served(kind, key, body["metadata"].get("uid")) as resource:
            if subresource and not resource.has_status:
                self.connection.discovery.forget(resource)  # a newer version of the kind may have one
                raise InternalError(f"{semantics.describe(body)}: this kind has no separate status; use update")
            try:
                return objects.shown(self.connection.request("PUT", resource.path(*key, subresource), body=body), kind)
            except ConflictError as error:
                raise _conflict(kind, key, body) from error

    def _mine(self, kind: Kind, key: Key, body: Object) -> Object | None:
        """Return the object with the requested name if it has every requested field."""
        try:
            stored = self.get(kind, key)
        except NotFoundError:
            return None
        return stored if objects.contains(stored, body) else None


def _conflict(kind: Kind, key: Key, body: Object) -> ConflictError:
    revision = body["metadata"]["resourceVersion"]
    return ConflictError(f"{kind.kind} {key}: revision {revision} is not the latest; read it again")
