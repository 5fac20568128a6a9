"""The kinds that the controllers read and write, and helpers to write their status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from katib.engine.runtime.objects import Key, Kind
from katib.model import types
from katib.model.types import API_VERSION

if TYPE_CHECKING:
    from katib.model.types import Model, OwnerReference, Resource

EXPERIMENT = Kind(API_VERSION, "Experiment")
SUGGESTION = Kind(API_VERSION, "Suggestion")
TRIAL = Kind(API_VERSION, "Trial")
CONFIG_MAP = Kind("v1", "ConfigMap")
JOB = Kind("batch/v1", "Job")
NAMESPACE = Kind("v1", "Namespace")
POD = Kind("v1", "Pod")
POD_HEADER = {"apiVersion": POD.api_version, "kind": POD.kind}
"""Fields that the objects of an API server's list lack."""
OPTIMIZATION_JOB = Kind("trainer.kubeflow.org/v1alpha1", "OptimizationJob")


def key_of(obj: Resource) -> Key:
    return Key(obj.metadata.namespace, obj.metadata.name)


def owned_by(owner: Resource) -> OwnerReference:
    return types.OwnerReference(
        api_version=owner.api_version,
        kind=type(owner).__name__,
        name=owner.name,
        uid=owner.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def owner_entry(owner: Resource) -> dict[str, Any]:
    """Return that reference in JSON form, for an object of a foreign kind."""
    return {
        "apiVersion": owner.api_version,
        "kind": type(owner).__name__,
        "name": owner.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def is_owned_by(obj: Resource, owner: Resource) -> bool:
    """Return whether this owner, and not an earlier one of the same name, controls an object."""
    uid = owner.metadata.uid
    for reference in obj.metadata.owner_references:  # noqa: SIM110 - as in `has_ended`
        if reference.uid == uid and reference.controller:
            return True
    return False


def with_status(obj: Resource, status: Model) -> dict[str, Any]:
    """Return the input of `ObjectStore.update_status`: the object's identity and its new status."""
    return {**as_read(obj), "status": status.encode()}


def as_read(obj: Resource) -> dict[str, Any]:
    """Return the input of `ObjectStore.patch`: the object's identity and revision."""
    metadata = obj.metadata
    return {
        "apiVersion": obj.api_version,
        "kind": type(obj).__name__,
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
        },
    }


def with_finalizer(obj: Resource, name: str) -> dict[str, Any]:
    return {"metadata": {"finalizers": [*(other for other in obj.metadata.finalizers if other != name), name]}}


def without_finalizer(obj: Resource, name: str) -> dict[str, Any]:
    return {"metadata": {"finalizers": [other for other in obj.metadata.finalizers if other != name]}}
