"""PaddleJob: workers alone (collective mode), or with masters that serve parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from katib.local.findings import Findings, is_given, mapping
from katib.local.jobs.kind import NewPod
from katib.local.jobs.replicated.replicas import Replicas
from katib.local.jobs.replicated.rules import check_fields, check_some
from katib.local.jobs.replicated.spec import TrainingSpec, replicas_by_type
from katib.local.jobs.replicated.training_kind import Peers, Port, TrainingKind
from katib.runtime.objects import Kind

MASTER: Final = "master"
WORKER: Final = "worker"

_ELASTIC_FIELDS = {"maxReplicas": "integer", "maxRestarts": "integer", "metrics": "list", "minReplicas": "integer"}


class PaddleJob(TrainingKind):
    """The kind PaddleJob."""

    kind = Kind("kubeflow.org/v1", "PaddleJob")
    replicas_field = "paddleReplicaSpecs"
    types = ("Master", "Worker")
    container = "paddle"
    port = Port("master", 36543)
    restart_policy = "OnFailure"
    address_variables = "PADDLE_MASTER"
    fields: ClassVar[Mapping[str, str]] = {"elasticPolicy": "mapping"}

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
        rendezvous is. Here all are, and one of them would win by chance, so each is told its rank.
        """
        spec = peers.spec
        host, port = peers.address(MASTER if spec.count(MASTER) else WORKER, 0)
        told = {
            "PYTHONUNBUFFERED": "1",
            "PADDLE_JOB_ID": str(peers.job["metadata"]["name"]),
            "PADDLE_NNODES": str(spec.total),
            "POD_IP_DUMMY": host,
            "PADDLE_MASTER": f"{host}:{port}",
        }
        if spec.count(MASTER):
            told["PADDLE_SERVER_NUM" if role == MASTER else "PADDLE_TRAINER_NUM"] = "1"
        elif spec.total > 1:
            told["PADDLE_RANK"] = str(index)
        return told

    def complete(self, pod: NewPod, _peers: Peers, _role: str, _index: int) -> NewPod:
        """Return a pod whose launcher has a directory of its own for what its processes print.

        The launcher prints that again: replicas and trials that share a directory print each other's metrics.
        """
        return replace(pod, defaults={**pod.defaults, "PADDLE_LOG_DIR": f"log/{pod.name}"})

    def check(self, spec: Mapping[str, Any], path: str, findings: Findings) -> None:
        """Check that there is a replica, and what needs a cluster."""
        given = replicas_by_type(mapping(spec.get(self.replicas_field)), self.types)
        for type_ in given:
            check_some(self, given, type_, path, findings)
        elastic, place = mapping(spec.get("elasticPolicy")), f"{path}.elasticPolicy"
        check_fields(elastic, _ELASTIC_FIELDS, place, "PaddleJob's elasticPolicy", findings)
        findings.all_below({"maxReplicas": 1, "maxRestarts": 0, "minReplicas": 1}, elastic, place)
        if is_given(elastic.get("metrics")) or elastic.get("minReplicas") != elastic.get("maxReplicas"):
            findings.notice(place, "the number of replicas does not change while a job runs on this machine")
