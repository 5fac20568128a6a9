"""Object stores and objects for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore, Watch, WatchEvent
from tests.support.memory_store import MemoryStore

WIDGET = Kind("example.org/v1", "Widget")
GADGET = Kind("example.org/v1", "Gadget")
NOTE = Kind("example.org/v1", "Note")
"""Has no status subresource."""
STAND_IN = Kind("test.katib.dev/v1", "StandIn")
"""What trials run as where nothing runs pods."""
CONFIG_MAP = Kind("v1", "ConfigMap")
STATUS_KINDS = frozenset(
    {
        WIDGET,
        GADGET,
        Kind("kubeflow.org/v1beta1", "Experiment"),
        Kind("kubeflow.org/v1beta1", "Suggestion"),
        Kind("kubeflow.org/v1beta1", "Trial"),
        Kind("batch/v1", "Job"),
    }
)
"""What the embedded home passes, and two kinds that mean nothing."""


def memory_store(clock: Clock | None = None, **options: int) -> MemoryStore:
    """Return an empty store in memory that knows the status kinds of the product."""
    return MemoryStore(STATUS_KINDS, clock=clock, **options)


def widget(name: str = "a", namespace: str = "team", *, kind: Kind = WIDGET, **fields: Any) -> dict[str, Any]:
    """Return an object to create; `labels`, `finalizers`, `ownerReferences` and so on go to its metadata."""
    top: dict[str, Any] = {field: fields.pop(field) for field in ("spec", "status", "data") if field in fields}
    metadata = {"name": name, "namespace": namespace, **fields}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **top}


def owned_by(*owners: Object) -> list[dict[str, Any]]:
    """Return owner references to stored objects."""
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        for owner in owners
    ]


def changed(obj: Object, **changes: Any) -> dict[str, Any]:
    """Return a copy of an object with top-level fields replaced."""
    return {**obj, **changes}


def with_metadata(obj: Object, **changes: Any) -> dict[str, Any]:
    """Return a copy of an object with metadata fields replaced."""
    return {**obj, "metadata": {**obj["metadata"], **changes}}


def names(store: ObjectStore, kind: Kind = WIDGET, **options: Any) -> list[str]:
    """Return the names a list call finds."""
    return [obj["metadata"]["name"] for obj in store.list(kind, **options).items]


def world(store: ObjectStore, *kinds: Kind) -> Mapping[tuple[Kind, Key], Object]:
    """Return everything a store keeps of some kinds."""
    return {(kind, Key.of(obj)): obj for kind in kinds for obj in store.list(kind).items}


def drain(watch: Watch, wait_seconds: float = 0.0) -> list[WatchEvent]:
    """Return the changes that a watch has now."""
    events = []
    while (event := watch.next(wait_seconds)) is not None:
        events.append(event)
    return events
