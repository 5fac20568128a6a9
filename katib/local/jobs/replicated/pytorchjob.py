"""PyTorchJob: a master and workers that find each other by the variables of `torch.distributed` and `torchrun`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from katib.local.findings import Findings
from katib.local.jobs.replicated.replicas import Replicas
from katib.local.jobs.replicated.spec import TrainingSpec
from katib.local.jobs.replicated.training_kind import Peers, Port, TrainingKind
from katib.runtime.objects import Kind

MASTER: Final = "master"
WORKER: Final = "worker"


class PyTorchJob(TrainingKind):
    """The kind PyTorchJob."""

    kind = Kind("kubeflow.org/v1", "PyTorchJob")
    replicas_field = "pytorchReplicaSpecs"
    types = ("Master", "Worker")
    container = "pytorch"
    port = Port("pytorchjob-port", 23456)
    restart_policy = "OnFailure"
    address_variables = "MASTER_ADDR and MASTER_PORT"
    fields: ClassVar[Mapping[str, str]] = {"elasticPolicy": "mapping", "nprocPerNode": "text"}

    def primary(self, spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        """Return the master, else the first worker."""
        return ((MASTER if spec.count(MASTER) else WORKER, 0),)

    def has_succeeded(self, replicas: Replicas) -> bool:
        """Return whether the master has succeeded, without one all workers; of elastic workers one is enough."""
        if replicas.spec.count(MASTER):
            return replicas.has_succeeded(MASTER, 0)
        if replicas.spec.fields.get("elasticPolicy") is not None:
            return replicas.any_succeeded(WORKER)
        return replicas.all_succeeded(WORKER)

    def waits_for(self, spec: TrainingSpec, role: str) -> str:
        """Return the master for workers, whose init container waits for it on a cluster."""
        return MASTER if role == WORKER and spec.count(MASTER) else ""

    def variables(self, peers: Peers, role: str, index: int) -> Mapping[str, str]:
        """Return the variables of a node; on this machine all nodes have one host name."""
        spec, told = peers.spec, {"PYTHONUNBUFFERED": "1"}
        processes = str(spec.fields.get("nprocPerNode") or "auto")
        if spec.count(MASTER):
            host, port = peers.address(MASTER, 0)
            rank = str(0 if role == MASTER else index + 1)
            world = spec.total * (int(processes) if processes.isdecimal() else 1)
            told |= {
                "MASTER_PORT": str(port),
                "PET_MASTER_PORT": str(port),
                "MASTER_ADDR": host,
                "PET_MASTER_ADDR": host,
                "WORLD_SIZE": str(world),
                "RANK": rank,
                "PET_NODE_RANK": rank,
            }
        return {**told, "PET_NPROC_PER_NODE": processes, "PET_NNODES": str(spec.total)}

    def check(self, spec: Mapping[str, Any], path: str, findings: Findings) -> None:
        """Check the master's count, the elastic policy and the number of processes."""
