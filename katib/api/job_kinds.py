"""The kinds of jobs whose end and whose primary pod are known, so that an experiment need not say them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_ROLE = "training.kubeflow.org/job-role"
_WORKER_0 = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}
_NODE_0 = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "batch.kubernetes.io/job-completion-index": "0"}


@dataclass(frozen=True, slots=True)
class JobKind:
    """What is known of a kind.

    Attributes:
        success: Type of the condition that says that a job has succeeded; `Failed` says everywhere that it has not.
        primary_pod_labels: Labels of the one pod that prints metrics; empty where every pod may.
    """

    success: str
    primary_pod_labels: Mapping[str, str] = field(default_factory=dict)


_TRAINING = JobKind("Succeeded", {_ROLE: "master"})
_KINDS = {
    "Job": JobKind("Complete"),
    "TFJob": _TRAINING,
    "PyTorchJob": _TRAINING,
    "XGBoostJob": _TRAINING,
    "MPIJob": _TRAINING,
    "PaddleJob": _TRAINING,
    "JAXJob": _TRAINING,
    "TrainJob": JobKind("Complete", _NODE_0),
    "JobSet": JobKind("Completed"),
}
"""By kind alone, as Katib finds them. Katib does not know PaddleJob, JAXJob and JobSet."""

KNOWN_KINDS = tuple(_KINDS)

_MPI_OPERATOR = JobKind("Succeeded", {_ROLE: "launcher"})
"""The MPI operator (`kubeflow.org/v2beta1`) names the role of its launcher so; nothing there is a master."""

_PADDLE_COLLECTIVE = JobKind("Succeeded", _WORKER_0)
"""A PaddleJob without Master has no pod with a role; its first worker is where the others meet."""


def known_kind(obj: Mapping[str, Any]) -> JobKind | None:
    """Return what is known of the kind of an object, None for a kind that only its user knows."""
    kind = obj.get("kind")
    if not isinstance(kind, str):
        return None
    if kind == "MPIJob" and obj.get("apiVersion") == "kubeflow.org/v2beta1":
        return _MPI_OPERATOR
    if kind == "PaddleJob" and not _has_master(obj):
        return _PADDLE_COLLECTIVE
    return _KINDS.get(kind)


def _has_master(obj: Mapping[str, Any]) -> bool:
    """Return whether a PaddleJob has a Master; the operator takes the names of replicas in any case."""
    spec = obj.get("spec")
    replicas = spec.get("paddleReplicaSpecs") if isinstance(spec, Mapping) else None
    return isinstance(replicas, Mapping) and any(str(name).lower() == "master" for name in replicas)
