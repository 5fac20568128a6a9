"""Pure conversions between the store's objects and the API server's requests and responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from katib.engine.runtime.objects import Key, Kind, Object
from katib.engine.stores import semantics
from katib.errors import invalid

Json = dict[str, Any]

_SET_BY_SERVER = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")


def to_create(obj: Json, *, namespaced: bool, has_status: bool) -> Json:
    """Return the body that creates an object; takes ownership of the isolated object. Generates a missing name.

    The name is generated here and not by the server, so that a creation whose response was lost can be recognized.

    Raises:
        InvalidError: The API server would refuse its form; the wording is that of all stores.
    """
    metadata = obj["metadata"]
    if not metadata.get("name"):
        metadata["name"] = semantics.generated_name(obj)
    semantics.require_names(metadata)
    if namespaced and not metadata.get("namespace"):
        raise invalid("metadata.namespace", "missing", "say in which namespace", "namespace-missing")
    for name in (*_SET_BY_SERVER, "uid", "resourceVersion", "managedFields"):
        metadata.pop(name, None)
    if has_status:
        obj.pop("status", None)
    return obj


def to_update(obj: Object) -> Json:
    """Return the body that updates an object read before, whose revision is compared.

    Raises:
        InvalidError: It lacks the revision that it is based on, or is not an object.
    """
    body = semantics.isolated(obj)
    metadata = body["metadata"]
    if not metadata.get("resourceVersion"):
        remedy = "read the object and update what was read"
        raise invalid("metadata.resourceVersion", "missing in an update", remedy, "revision-missing")
    for name in (*_SET_BY_SERVER, "managedFields"):
        metadata.pop(name, None)
    return body


def to_patch(obj: Object, changes: Mapping[str, Any]) -> Json:
    """Return the merge patch to send: the changes, with the uid and revision that they apply to.

    Raises:
        InvalidError: It is not a patch, or the object lacks the revision that it is based on.
    """
    metadata = to_update(obj)["metadata"]
    patch = semantics.require_patch(changes)
    meant = {name: metadata[name] for name in ("uid", "resourceVersion") if name in metadata}
    return {**patch, "metadata": {**patch.get("metadata", {}), **meant}}


def shown(obj: Json, kind: Kind) -> Json:
    """Return an object of a response as the store returns it: with its kind, without `managedFields`.

    Takes ownership of the object. Items of a list lack their kind, and `managedFields` would be half of a cache's
    memory.
    """
    obj.setdefault("apiVersion", kind.api_version)
    obj.setdefault("kind", kind.kind)
    obj["metadata"].pop("managedFields", None)
    return obj


def in_order(objects: Iterable[Object]) -> tuple[Object, ...]:
    """Return objects in order of creation, which has a resolution of one second; then in order of names."""

    def age(obj: Object) -> tuple[str, Key]:
        return obj["metadata"].get("creationTimestamp") or "", Key.of(obj)

    return tuple(sorted(objects, key=age))


def selector(*parts: str, labels: Mapping[str, str] | None = None) -> str:
    equal = (f"{name}={value}" for name, value in sorted((labels or {}).items()))
    return ",".join(part for part in (*parts, *equal) if part)


def contains(stored: Any, given: Any) -> bool:
    """Return whether a stored value has every given field; the server and webhooks may have added more."""
    if isinstance(given, dict):
        return isinstance(stored, dict) and all(
            contains(stored.get(name), value) for name, value in given.items() if value not in (None, {}, [], "")
        )
    if isinstance(given, list):
        return isinstance(stored, list) and len(stored) == len(given) and all(map(contains, stored, given))
    return bool(stored == given)
