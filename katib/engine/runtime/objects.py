"""Objects and the protocol of their store.

An object is a JSON mapping of the Kubernetes shape: apiVersion, kind, metadata, and usually spec and status. Both homes
keep the same objects; a controller written against this protocol runs in either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

Object = Mapping[str, Any]
"""One object. Treat as frozen: objects returned by a store or an informer are shared; copy before changing one."""


class Kind(NamedTuple):
    """Kind of an object: `("kubeflow.org/v1beta1", "Trial")`."""

    api_version: str
    kind: str

    @classmethod
    def of(cls, obj: Object) -> Kind:
        return cls(obj.get("apiVersion", ""), obj.get("kind", ""))


class Key(NamedTuple):
    """Key of an object of a kind. The namespace is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Object) -> Key:
        metadata = obj.get("metadata", {})
        return cls(metadata.get("namespace", ""), metadata.get("name", ""))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ObjectList:
    """Result of a list call, or one page of it.

    Attributes:
        items: The objects in order of creation; on a page of several, in the order of `ObjectStore.pages`.
        resource_version: A watch from this revision sees every later change and no earlier one. The same on all pages.
        in_order: Whether pages are in order of creation, at least among those of one owner, and complete.
    """

    items: tuple[Object, ...]
    resource_version: str
    in_order: bool = False


class EventType(StrEnum):
    """Type of a change."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change. For DELETED the object is its last state, with the revision of the deletion.

    Attributes:
        struct: The decoded object, if the store has read it for its search. All watchers share it.
    """

    type: EventType
    object: Object
    struct: Any = None

    @property
    def resource_version(self) -> str:
        """Revision of the change."""
        version: str = self.object["metadata"]["resourceVersion"]
        return version


class Watch(Protocol):
    """A stream of changes of one kind, in order, without gaps or repeats. For one reader thread; `close` from any."""

    def next(self, timeout_seconds: float | None = None) -> WatchEvent | None:
        """Return the next change, or None after the timeout or once the watch was closed.

        Raises:
            ExpiredError: The reader fell too far behind, or the store was restored; list again.
            UnavailableError: The connection was lost; watch again from the last revision seen.
        """

    def close(self) -> None:
        """End the stream and wake the reader. Idempotent."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None, /
    ) -> None: ...


@runtime_checkable
class NotifyingWatch(Protocol):
    """Optional ability of a watch: to notify of changes, for a reader that cannot block in `next`."""

    def tell(self, on_change: Callable[[], None]) -> None:
        """Register a callback for every change, and call it now; it must not block."""

    def take(self) -> Iterable[WatchEvent]:
        """Return the available changes without waiting, as `next` would one by one. Raises as `next`."""


class ObjectStore(Protocol):
    """Stores objects. All methods are thread-safe.

    Semantics are those of the Kubernetes API:

    - The store sets `metadata.uid`, `creationTimestamp`, `resourceVersion` (opaque, changes with every write) and
      `generation` (starts at 1, grows when `spec` changes). The caller's values are ignored, except that updates
      compare `resourceVersion`.
    - For the kinds that have a status subresource, `create` and `update` ignore `status`, and `update_status` changes
      nothing but `status`.
    - A write that changes nothing has no effect: same revision, no event.
    - Deleting an object with finalizers only sets `deletionTimestamp`; it is removed when an update or a patch removes
      the last finalizer. When an object is removed, objects whose owner references name its uid are deleted, too,
      unless another of their owners still exists.

    All methods raise UnavailableError if the store cannot be reached, after their own short retries.
    """

    def get(self, kind: Kind, key: Key) -> Object:
        """Return an object.

        Raises:
            NotFoundError: There is none.
        """

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        owner_uid: str | None = None,
    ) -> ObjectList:
        """Return the objects of a kind, in order of creation.

        Args:
            namespace: Restricts the result to this namespace; None for any.
            labels: Restricts the result to objects with all of these labels.
            owner_uid: Restricts the result to objects with an owner reference to this uid.
        """

    def pages(
        self, kind: Kind, namespace: str | None = None, *, labels: Mapping[str, str] | None = None
    ) -> Iterator[ObjectList]:
        """Yield the result of `list` a page at a time, at least one: for callers that keep little of each object.

        All pages have the same revision. They come in any order in which a stable sort by `creationTimestamp` yields
        the order of creation. The store does not keep returned pages, so that a reader that drops each before
        requesting the next never holds two.

        Raises:
            ExpiredError: The store no longer has that revision; begin again, and discard the pages so far.
        """

    def create(self, obj: Object) -> Object:
        """Store a new object and return it as stored. An empty name with a `generateName` gets a random suffix.

        Raises:
            AlreadyExistsError: The name is taken.
        """

    def update(self, obj: Object) -> Object:
        """Replace metadata (labels, annotations, owners, finalizers) and everything but status; return it as stored.

        Raises:
            ConflictError: The object changed since the revision in `obj`.
            NotFoundError: It is gone, or another object has its name now (uid differs).
        """

    def patch(self, obj: Object, changes: Mapping[str, Any]) -> Object:
        """Change the named fields of an object; all others keep their stored form.

        Use this to write objects of users: their author's text may hold more than Katib's types, and an API server with
        validation rules refuses a field that comes back in another form, such as without its empty list.

        Args:
            obj: The object as read. Its metadata identifies the object and the revision; the rest is ignored.
            changes: A JSON merge patch (RFC 7386): maps are merged, null removes a field, everything else replaces it.
                A status cannot be changed this way.

        Returns:
            The object as stored. Raises as `update`.
        """

    def update_status(self, obj: Object) -> Object:
        """Replace the status; return the object as stored. Raises as `update`.

        Besides the status, only kind, identity and revision of `obj` are used: the rest may be missing.
        """

    def delete(self, kind: Kind, key: Key, *, uid: str | None = None) -> None:
        """Delete an object and then its dependents.

        Raises:
            NotFoundError: There is none, or its uid is another.
        """

    def watch(self, kind: Kind, since: str) -> Watch:
        """Stream the changes of a kind after the revision `since` (from a list or an event).

        Raises:
            ExpiredError: That revision is no longer kept; list again.
        """


@runtime_checkable
class WholeWrites(Protocol):
    """Optional ability of a store: to write an object and its status at once, for kinds with a status subresource.

    Readers never see one without the other; it is one change and one revision.
    """

    def create_whole(self, obj: Object) -> Object:
        """Store a new object with its status. Returns and raises as `ObjectStore.create`."""

    def patch_whole(self, obj: Object, changes: Mapping[str, Any]) -> Object:
        """Change the named fields, and the status to that of `obj`. Returns and raises as `ObjectStore.patch`."""


@dataclass(frozen=True, slots=True)
class ListSlice:
    """Part of a list, in order of creation, as text: many objects are passed on without being decoded.

    Attributes:
        resource_version: Revision of the store at the time of reading.
        place: Start of the next slice; empty after the last one.
    """

    bodies: tuple[str, ...]
    resource_version: str
    place: str = ""


@runtime_checkable
class SlicedStore(Protocol):
    """Optional ability of a store: to continue a list from an earlier call's end, without reading what precedes it.

    Each slice shows its objects as of its own read.
    """

    def slice(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        limit: int,
        place: str = "",
    ) -> ListSlice:
        """Return at most `limit` objects of a kind after a place; all other arguments are those of `list`.

        Raises:
            InvalidError: The place was not returned by a slice.
        """
