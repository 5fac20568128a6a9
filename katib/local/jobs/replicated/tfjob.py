"""TFJob: parameter servers, workers, a chief and an evaluator that find each other by `TF_CONFIG`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from katib.api.wording import did_you_mean, shown
from katib.local.findings import Part
from katib.local.jobs.kind import container_names
from katib.local.jobs.replicated.replicas import Replicas
from katib.local.jobs.replicated.rules import replicas_of
from katib.local.jobs.replicated.spec import TrainingSpec
from katib.local.jobs.replicated.training_kind import WORKER, Peers, Port, TrainingKind
from katib.local.jobs.structure import Structure, structure
from katib.runtime.objects import Kind

CHIEFS: Final = ("chief", "master")
_ALL_WORKERS: Final = "AllWorkers"


class TFJob(TrainingKind):
    """The kind TFJob."""

    kind = Kind("kubeflow.org/v1", "TFJob")
    replicas_field = "tfReplicaSpecs"
    types = ("Chief", "Evaluator", "Master", "PS", "Worker")
    container = "tensorflow"
    port = Port("tfjob-port", 2222)
    address_variables = "TF_CONFIG"
    older_operator = "tf"
    fields: ClassVar[Structure] = structure(boolean="enableDynamicWorker", text="successPolicy")
    endless = frozenset({"ps"})

    def primary(self, spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        """Return the replicas of the chief or master, else the first worker."""
        chief = _chief(spec)
        return tuple((chief, i) for i in range(spec.count(chief))) if chief else ((WORKER, 0),)

    def listeners(self, spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        """Return all replicas."""
        return spec.wanted

    def has_succeeded(self, replicas: Replicas) -> bool:
        """Return whether the chief has succeeded, without one the first worker or all, as the success policy says."""
        if chief := _chief(replicas.spec):
            return replicas.all_succeeded(chief)
        if replicas.spec.fields.get("successPolicy") == _ALL_WORKERS:
            return replicas.all_succeeded(WORKER)
        return replicas.has_succeeded(WORKER, 0)

    def variables(self, peers: Peers, role: str, index: int) -> Mapping[str, str]:
        """Return `TF_CONFIG`; a job of one replica is not distributed and gets none."""
        if peers.spec.total == 1:
            return {}
        domain = f".{peers.job['metadata']['namespace']}.svc"
        cluster = {
            name: [f"{host}:{port}" for host, port in (peers.address(name, i, domain) for i in range(replica.count))]
            for name, replica in sorted(peers.spec.roles.items())
        }
        config = {"cluster": cluster, "task": {"type": role, "index": index}, "environment": "cloud"}
        return {"TF_CONFIG": json.dumps(config, separators=(",", ":"))}

    def receivers(self, template: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the container that trains, alone."""
        return tuple(name for name in container_names(template) if name == self.container)

    def check(self, spec: Part) -> None:
        """Check that the job can end, and what needs a cluster."""
        given, replicas = replicas_of(self, spec), spec[self.replicas_field]
        if "Chief" in given and "Master" in given:
            replicas.error("Chief and Master are the same role", "keep one of them", "replica-type")
        elif given and not given.keys() & {"Chief", "Master", "Worker"}:
            cause = "without Chief, Master or Worker a TFJob never succeeds"
            replicas.error(cause, "add a Worker", "replica-type")
        cause = "workers cannot be added while a job runs on this machine"
        spec["enableDynamicWorker"].refuse(cause, "remove it", "replica-scaling")
        policy = spec["successPolicy"]
        if policy.text not in {"", _ALL_WORKERS}:
            remedy = f"{did_you_mean(policy.text, [_ALL_WORKERS])}, or remove it: the first worker decides"
            policy.error(f"{shown(policy.text)} is not known", remedy, "job-choice")


def _chief(spec: TrainingSpec) -> str:
    return next((role for role in CHIEFS if spec.count(role)), "")
