"""PaddleJob: workers alone (collective mode), or with masters that serve parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from katib.local.findings import Part
from katib.local.jobs.kind import NewPod
from katib.local.jobs.replicated.replicas import Replicas
from katib.local.jobs.replicated.rules import check_some
from katib.local.jobs.replicated.spec import TrainingSpec
from katib.local.jobs.replicated.training_kind import MASTER, WORKER, Peers, Port, TrainingKind
from katib.local.jobs.structure import Structure, structure
from katib.runtime.objects import Kind


class PaddleJob(TrainingKind):
    """The kind PaddleJob."""

    kind = Kind("kubeflow.org/v1", "PaddleJob")
    replicas_field = "paddleReplicaSpecs"
    types = ("Master", "Worker")
    container = "paddle"
    port = Port("master", 36543)
    restart_policy = "OnFailure"
    address_variables = "PADDLE_MASTER"
    fields: ClassVar[Structure] = {
        "elasticPolicy": structure(integer="maxReplicas maxRestarts minReplicas", list="metrics")
    }

    def primary(self, spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        """Return the masters; workers alone have no role."""
        return tuple((MASTER, i) for i in range(spec.count(MASTER)))

    def listeners(self, spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        """Return the first master, without one the first worker."""
        return ((MASTER if spec.count(MASTER) else WORKER, 0),)

    def has_succeeded(self, replicas: Replicas) -> bool:
        """Return whether all masters have succeeded, without one all workers."""
        return replicas.all_succeeded(MASTER if replicas.spec.count(MASTER) else WORKER)

    def variables(self, peers: Peers, role: str, index: int) -> Mapping[str, str]:
        """Return what `paddle.distributed.launch` reads.

        The operator leaves it to the launchers that the first worker becomes rank 0: the others are not where the
        rendezvous is. Here all are, and one of them would win by chance, so each gets its rank.
        """
        spec = peers.spec
        host, port = peers.address(MASTER if spec.count(MASTER) else WORKER, 0)
        variables = {
            "PYTHONUNBUFFERED": "1",
            "PADDLE_JOB_ID": str(peers.job["metadata"]["name"]),
            "PADDLE_NNODES": str(spec.total),
            "POD_IP_DUMMY": host,
            "PADDLE_MASTER": f"{host}:{port}",
        }
        if spec.count(MASTER):
            variables["PADDLE_SERVER_NUM" if role == MASTER else "PADDLE_TRAINER_NUM"] = "1"
        elif spec.total > 1:
            variables["PADDLE_RANK"] = str(index)
        return variables

    def complete(self, pod: NewPod, _peers: Peers, _role: str, _index: int) -> NewPod:
        """Return a pod whose launcher has a directory of its own for what its processes print.

        The launcher prints that again: replicas and trials that share a directory print each other's metrics.
        """
        return replace(pod, defaults={**pod.defaults, "PADDLE_LOG_DIR": f"log/{pod.name}"})

    def check(self, spec: Part) -> None:
        """Check that there is a replica, and what needs a cluster."""
        check_some(self, spec, *self.types)
        elastic = spec["elasticPolicy"]
        elastic.at_least(maxReplicas=1, maxRestarts=0, minReplicas=1)
        if elastic["metrics"].is_given or elastic["minReplicas"].value != elastic["maxReplicas"].value:
            elastic.notice("the number of replicas does not change while a job runs on this machine")
