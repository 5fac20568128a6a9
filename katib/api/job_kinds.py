"""The kinds of jobs whose end and whose primary pod are known, so that an experiment need not say them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_ROLE = "training.kubeflow.org/job-role"
_WORKER_0 = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"}
_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
_NODE_0 = {_REPLICATED_JOB: "node", "batch.kubernetes.io/job-completion-index": "0"}


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

_LAUNCHED = JobKind("Complete", {_REPLICATED_JOB: "launcher"})
"""Of TrainJobs whose runtime uses MPI the first node only waits for the launcher, which prints what comes out."""

_MPI_RUNTIMES = frozenset({"deepspeed-distributed", "mlx-distributed"})
"""As Kubeflow Trainer ships them. Runtimes of users are looked up where they can be, on one machine."""


def known_kind(obj: Mapping[str, Any]) -> JobKind | None:
    """Return what is known of the kind of an object, None for a kind that only its user knows."""
    kind = obj.get("kind")
    if not isinstance(kind, str):
        return None
    if kind == "MPIJob" and obj.get("apiVersion") == "kubeflow.org/v2beta1":
        return _MPI_OPERATOR
    if kind == "PaddleJob" and not _has_master(obj):
        return _PADDLE_COLLECTIVE
    if kind == "TrainJob" and _runtime_name(obj) in _MPI_RUNTIMES:
        return _LAUNCHED
    return _KINDS.get(kind)


def _has_master(obj: Mapping[str, Any]) -> bool:
    """Return whether a PaddleJob has a Master; the operator takes the names of replicas in any case."""
    spec = obj.get("spec")
    replicas = spec.get("paddleReplicaSpecs") if isinstance(spec, Mapping) else None
    return isinstance(replicas, Mapping) and any(str(name).lower() == "master" for name in replicas)


def _runtime_name(obj: Mapping[str, Any]) -> object:
    """Return the name of the cluster's runtime that a TrainJob refers to; None when it refers to none."""
    spec = obj.get("spec")
    reference = spec.get("runtimeRef") if isinstance(spec, Mapping) else None
    if (
        not isinstance(reference, Mapping)
        or reference.get("kind", "ClusterTrainingRuntime") != "ClusterTrainingRuntime"
    ):
        return None
    name = reference.get("name")
    return name if isinstance(name, str) else None
