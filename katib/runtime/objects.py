"""Objects and the store that keeps them.

An object is a JSON mapping of the Kubernetes shape: apiVersion, kind, metadata, and usually spec and status. Both
homes keep the same objects; a controller that works against this protocol runs in either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

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
    """What a list call saw.

    Attributes:
        items: The objects in order of creation.
        resource_version: Watch from here to see every later change and no earlier one.
    """

    items: tuple[Object, ...]
    resource_version: str


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
      update. When an object goes, objects whose owner references name its uid are deleted too, unless another of
      their owners still exists.

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

    def update_status(self, obj: Object) -> Object:
        """Replace the status; return the object as stored. Raises as `update`."""

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
