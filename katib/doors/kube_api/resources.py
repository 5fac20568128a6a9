"""The served kinds: one readable list, from which paths, discovery and columns follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from katib.doors.kube_api import columns
from katib.doors.kube_api.columns import AGE, PrinterColumn
from katib.engine.controllers.kinds import CONFIG_MAP, EXPERIMENT, NAMESPACE, OPTIMIZATION_JOB, POD, SUGGESTION, TRIAL
from katib.engine.runtime.objects import Kind
from katib.service.tuning.object_home import LEASE

_ALL = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_READ = ("get", "list", "watch")

EVENT = Kind("v1", "Event")
SECRET = Kind("v1", "Secret")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount")
JOB = Kind("batch/v1", "Job")

_TRAINING, _TRAINER = "kubeflow.org/v1", "trainer.kubeflow.org/v1alpha1"
CLUSTER_RUNTIME = Kind(_TRAINER, "ClusterTrainingRuntime")


@dataclass(frozen=True, slots=True)
class ServedResource:
    """One kind of objects.

    Attributes:
        columns: Columns of `kubectl get` beside the name.
        categories: kubectl's categories.
        subresources: `status` or `log`.
        is_custom: Whether a cluster has it from a CustomResourceDefinition, which does not support strategic merge
            patches.
    """

    kind: Kind
    plural: str
    columns: tuple[PrinterColumn, ...]
    verbs: tuple[str, ...] = _ALL
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    is_namespaced: bool = True
    subresources: tuple[str, ...] = ("status",)
    is_custom: bool = True

    @property
    def group(self) -> str:
        """Its API group; empty for the core."""
        return self.kind.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.kind.api_version.rpartition("/")[2]

    @property
    def singular(self) -> str:
        return self.kind.kind.lower()

    @property
    def title(self) -> str:
        """Its name in Kubernetes' messages: `experiments.kubeflow.org`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _built_in(
    kind: Kind, shown: tuple[PrinterColumn, ...], verbs: tuple[str, ...] = _ALL, *short_names: str
) -> ServedResource:
    plural = f"{kind.kind.lower()}s"
    return ServedResource(kind, plural, shown, verbs, short_names, subresources=(), is_custom=False)


_KATIB = ("all", "kubeflow", "katib")

_APPS = ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet")
_EMPTY: tuple[ServedResource, ...] = (
    *(
        replace(_built_in(Kind("v1", kind), (AGE,), _READ, *short), is_namespaced=is_namespaced)
        for kind, is_namespaced, *short in (
            ("Node", False, "no"),
            ("PersistentVolume", False, "pv"),
            ("PersistentVolumeClaim", True, "pvc"),
            ("ReplicationController", True, "rc"),
            ("Service", True, "svc"),
        )
    ),
    replace(_built_in(Kind("v1", "Endpoints"), (AGE,), _READ, "ep"), plural="endpoints"),
    *(_built_in(Kind("apps/v1", kind), (AGE,), _READ) for kind in _APPS),
    _built_in(Kind("batch/v1", "CronJob"), (AGE,), _READ, "cj"),
    replace(_built_in(Kind("networking.k8s.io/v1", "Ingress"), (AGE,), _READ, "ing"), plural="ingresses"),
)
"""Kinds of every cluster without objects here: clients such as `kubectl apply --prune` list them."""

RESOURCES: tuple[ServedResource, ...] = (
    ServedResource(EXPERIMENT, "experiments", columns.EXPERIMENT, categories=_KATIB),
    ServedResource(SUGGESTION, "suggestions", columns.SUGGESTION, categories=_KATIB),
    ServedResource(TRIAL, "trials", columns.TRIAL, categories=_KATIB),
    *(
        ServedResource(Kind(_TRAINING, kind), f"{kind.lower()}s", columns.STATE)
        for kind in ("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")
    ),
    ServedResource(Kind("kubeflow.org/v2beta1", "MPIJob"), "mpijobs", columns.STATE),
    ServedResource(JOB, "jobs", columns.JOB, categories=("all",), is_custom=False),
    ServedResource(Kind(_TRAINER, "TrainJob"), "trainjobs", columns.STATE),
    ServedResource(OPTIMIZATION_JOB, "optimizationjobs", (AGE,)),
    ServedResource(Kind(_TRAINER, "TrainingRuntime"), "trainingruntimes", (AGE,), subresources=()),
    ServedResource(CLUSTER_RUNTIME, "clustertrainingruntimes", (AGE,), is_namespaced=False, subresources=()),
    ServedResource(Kind("jobset.x-k8s.io/v1alpha2", "JobSet"), "jobsets", columns.JOB_SET),
    replace(_built_in(POD, columns.POD, _READ, "po"), categories=("all",), subresources=("log", "status")),
    _built_in(CONFIG_MAP, columns.CONFIG_MAP, _ALL, "cm"),
    _built_in(SECRET, columns.SECRET),
    _built_in(EVENT, columns.EVENT, _ALL, "ev"),
    _built_in(LEASE, columns.LEASE),
    replace(_built_in(NAMESPACE, columns.NAMESPACE, ("create", *_READ), "ns"), is_namespaced=False),
    _built_in(SERVICE_ACCOUNT, columns.SERVICE_ACCOUNT, _READ, "sa"),
    *_EMPTY,
)
REVIEWS: tuple[ServedResource, ...] = tuple(
    replace(_built_in(Kind(f"{group}.k8s.io/v1", kind), (), ("create",)), is_namespaced=False)
    for group, kind in (
        ("authorization", "SelfSubjectAccessReview"),
        ("authorization", "SelfSubjectRulesReview"),
        ("authentication", "SelfSubjectReview"),
    )
)
"""Kinds that are created to be answered and not stored."""


def by_path(resources: Sequence[ServedResource]) -> Mapping[tuple[str, str], ServedResource]:
    """Return the resources by apiVersion and plural.

    Raises:
        ValueError: There are duplicates.
    """
    found = {(resource.kind.api_version, resource.plural): resource for resource in resources}
    if len(found) < len(resources):
        raise ValueError("a resource is listed twice")
    return found


def group_versions(resources: Sequence[ServedResource]) -> dict[str, list[str]]:
    """Return the versions of each group, in the order of the list; the first one is preferred."""
    found: dict[str, list[str]] = {}
    for resource in resources:
        versions = found.setdefault(resource.group, [])
        if resource.version not in versions:
            versions.append(resource.version)
    return found
