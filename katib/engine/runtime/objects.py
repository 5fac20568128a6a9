"""Objects and the store that keeps them.

An object is a JSON mapping of the Kubernetes shape: apiVersion, kind, metadata, and usually spec and status. Both
homes keep the same objects; a controller that works against this protocol runs in either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

Object = Mapping[str, Any]
"""One object. Treat as frozen: what a store or an informer hands out is shared; copy before you change it."""


class Kind(NamedTuple):
    """Which kind of object: `("kubeflow.org/v1beta1", "Trial")`."""

    api_version: str
    kind: str

    @classmethod
    def of(cls, obj: Object) -> Kind:
        """Return the kind of an object."""
        return cls(obj.get("apiVersion", ""), obj.get("kind", ""))


class Key(NamedTuple):
    """Which object of a kind. Namespace is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Object) -> Key:
        """Return the key of an object."""
        metadata = obj.get("metadata", {})
        return cls(metadata.get("namespace", ""), metadata.get("name", ""))

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ObjectList:
    """What a list call saw, or one page of it.

    Attributes:
        items: The objects in order of creation; on a page of several, in the order of `ObjectStore.pages`.
        resource_version: Watch from here to see every later change and no earlier one. The same on all pages.
        in_order: Whether pages come in order of creation, at least those of one owner, and none fails to come.
    """

    items: tuple[Object, ...]
    resource_version: str
    in_order: bool = False


class EventType(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change. For DELETED the object is its last state, with the revision of the deletion."""

    type: EventType
    object: Object

    @property
    def resource_version(self) -> str:
        """Revision of the change."""
        version: str = self.object["metadata"]["resourceVersion"]
        return version


class Watch(Protocol):
    """A stream of changes of one kind, in order, without gaps or repeats. One reader thread; `close` from any."""

    def next(self, timeout_seconds: float | None = None) -> WatchEvent | None:
        """Return the next change, or None when the time is up or the watch was closed.

        Raises:
            ExpiredError: The reader fell too far behind, or the store was restored; list again.
            UnavailableError: The connection was lost; watch again from the last revision seen.
        """

    def close(self) -> None:
        """End the stream and wake the reader. Closing twice is fine."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None, /
    ) -> None: ...


@runtime_checkable
class TellingWatch(Protocol):
    """An ability of a watch: to say that there are changes, for a reader that cannot wait in `next`."""

    def tell(self, on_change: Callable[[], None]) -> None:
        """Register a callback for every change, and call it now; it must not block."""

    def take(self) -> Iterable[WatchEvent]:
        """Return the changes that are there, without waiting: what `next` would return one by one. Raises as `next`."""


class ObjectStore(Protocol):
    """Keeps objects. All methods may be called from any thread.

    Semantics are those of the Kubernetes API:

    - The store sets `metadata.uid`, `creationTimestamp`, `resourceVersion` (opaque, changes with every write) and
      `generation` (starts at 1, grows when `spec` changes). What the caller puts there is ignored, except that
      updates compare `resourceVersion`.
    - For the kinds that have a status subresource, `create` and `update` ignore `status`, and `update_status` changes
      nothing but `status`.
    - A write that changes nothing is no write: same revision, no event.
    - Deleting an object with finalizers only sets `deletionTimestamp`; it goes when the last finalizer is removed by an
      update or a patch. When an object goes, objects whose owner references name its uid are deleted too, unless
      another of their owners still exists.

    All methods raise UnavailableError when the store cannot be reached, after their own short retries.
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
            kind: Which kind.
            namespace: Only objects of this namespace; None: of any.
            labels: Only objects that carry all of these.
            owner_uid: Only objects with an owner reference to this uid.
        """

    def pages(
        self, kind: Kind, namespace: str | None = None, *, labels: Mapping[str, str] | None = None
    ) -> Iterator[ObjectList]:
        """Yield what `list` returns a page at a time, at least one: for callers that keep little of each object.

        All pages show the same revision. They come in any order, in which a stable sort by `creationTimestamp` yields
        the order of creation. The store keeps no page that it has handed out, so that a reader that lets go of each
        before it asks for the next never holds two.

        Raises:
            ExpiredError: The store does not know that revision any more; begin again, and forget the pages so far.
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
        """Change the named fields of an object and leave every other as it is stored, in the form that it has there.

        This is how objects of users are written: what their author wrote may say more than our types know, and an
        API server with rules refuses a field that comes back in another form, such as without its empty list.

        Args:
            obj: The object as it was read. Which one is changed, and since which revision, is read from its metadata;
                the rest may be anything.
            changes: A JSON merge patch (RFC 7386): maps are merged, null removes a field, everything else replaces it.
                A status cannot be changed this way.

        Returns:
            The object as stored. Raises as `update`.
        """

    def update_status(self, obj: Object) -> Object:
        """Replace the status; return the object as stored. Raises as `update`.

        Besides the status only kind and metadata are looked at, and of these what says which object is meant and since
        which revision: the rest need not be there.
        """

    def delete(self, kind: Kind, key: Key, *, uid: str | None = None) -> None:
        """Delete an object and, behind it, what it owns.

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
    """An ability of a store: to write an object and its status at once, for kinds that have a status subresource.

    Readers never see the one without the other, and it is one change and one revision.
    """

    def create_whole(self, obj: Object) -> Object:
        """Store a new object with the status that it brings. Returns and raises as `ObjectStore.create`."""

    def patch_whole(self, obj: Object, changes: Mapping[str, Any]) -> Object:
        """Change the named fields, and the status to that of `obj`. Returns and raises as `ObjectStore.patch`."""


@dataclass(frozen=True, slots=True)
class Slice:
    """Some objects of a list, in order of creation, as text: many are passed on without being read.

    Attributes:
        bodies: The JSON text of each.
        resource_version: Of the store when they were read.
        place: Where the next slice begins; empty behind the last one.
    """

    bodies: tuple[str, ...]
    resource_version: str
    place: str = ""


@runtime_checkable
class SlicedStore(Protocol):
    """An ability of a store: to go on with a list where an earlier call left off, without reading what comes before.

    Each slice shows its objects as they are when it is read.
    """

    def slice(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        limit: int,
        place: str = "",
    ) -> Slice:
        """Return at most `limit` objects of a kind that come behind a place; all other arguments are those of `list`.

        Raises:
            InvalidError: The place is none that a slice named.
        """
