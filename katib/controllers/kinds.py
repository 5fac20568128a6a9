"""The kinds the controllers read and write, and how to write their status."""

from __future__ import annotations

from typing import Any

from katib.api.types import API_VERSION, OwnerReference, Resource
from katib.runtime.objects import Key, Kind

EXPERIMENT = Kind(API_VERSION, "Experiment")
SUGGESTION = Kind(API_VERSION, "Suggestion")
TRIAL = Kind(API_VERSION, "Trial")
CONFIG_MAP = Kind("v1", "ConfigMap")


def key_of(obj: Resource) -> Key:
    """Return the key of an object."""
    return Key(obj.namespace, obj.name)


def owned_by(owner: Resource) -> OwnerReference:
    """Return the reference that makes `owner` the controller of another object."""
    return OwnerReference(
        api_version=API_VERSION,
        kind=type(owner).__name__,
        name=owner.name,
        uid=owner.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def is_owned_by(obj: Resource, owner: Resource) -> bool:
    """Tell whether an object is controlled by this very owner, and not by an earlier one of the same name."""
    return any(o.controller and o.uid == owner.metadata.uid for o in obj.metadata.owner_references)


def with_status(obj: Resource, status: Any) -> dict[str, Any]:
    """Return the JSON form of an object with another status, to be written."""
    return obj.model_copy(update={"status": status}).encode()


def with_metadata(obj: Resource, **changes: Any) -> dict[str, Any]:
    """Return the JSON form of an object with other metadata, to be written."""
    return obj.model_copy(update={"metadata": obj.metadata.model_copy(update=changes)}).encode()
