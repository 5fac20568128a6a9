"""PyTorchJob: a master and workers that find each other by the variables of `torch.distributed` and `torchrun`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from katib.api.wording import did_you_mean, either, shown
from katib.local.findings import Findings, is_given, mapping, text
from katib.local.jobs.replicated.replicas import Replicas
from katib.local.jobs.replicated.rules import check_fields, check_single, check_some
from katib.local.jobs.replicated.spec import TrainingSpec, replicas_by_type
from katib.local.jobs.replicated.training_kind import Peers, Port, TrainingKind
from katib.local.pods.tokens import Request
from katib.runtime.objects import Kind

_PROCESSES: Final = ("auto", "cpu", "gpu")
_BACKENDS: Final = ("c10d", "etcd", "etcd-v2")
_ELASTIC_FIELDS: Final = {
    "maxReplicas": "integer",
    "maxRestarts": "integer",
    "metrics": "list",
    "minReplicas": "integer",
    "nProcPerNode": "integer",
    "rdzvBackend": "text",
    "rdzvConf": "list",
    "rdzvHost": "text",
    "rdzvId": "text",
    "rdzvPort": "integer",
    "standalone": "boolean",
}

_LOWEST: Final = {"maxReplicas": 1, "maxRestarts": 0, "minReplicas": 1, "nProcPerNode": 1, "rdzvPort": 1}

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
    older_operator = "pytorch"
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
        """Return the variables of a node; on this machine all nodes have one address."""
        spec, told = peers.spec, {"PYTHONUNBUFFERED": "1"}
        elastic = mapping(spec.fields.get("elasticPolicy"))
        if spec.count(MASTER):
            host, port = peers.address(MASTER, 0)
            rank = str(0 if role == MASTER else index + 1)
            told |= {
                "MASTER_PORT": str(port),
                "PET_MASTER_PORT": str(port),
                "MASTER_ADDR": host,
                "PET_MASTER_ADDR": host,
                "WORLD_SIZE": str(spec.total * _declared_processes(spec)),
                "RANK": rank,
                "PET_NODE_RANK": rank,
            }
        told["PET_NPROC_PER_NODE"] = _processes(spec, role)
        told["PET_NNODES"] = _nodes(spec, elastic)
        return {**told, **(_elastic_variables(elastic, peers) if "elasticPolicy" in spec.fields else {})}

    def check(self, spec: Mapping[str, Any], path: str, findings: Findings) -> None:
        """Check the master's count, the number of processes and the elastic policy."""
        given = replicas_by_type(mapping(spec.get(self.replicas_field)), self.types)
        check_single(self, given, "Master", path, findings)
        check_some(self, given, "Worker", path, findings)
        elastic, place = mapping(spec.get("elasticPolicy")), f"{path}.elasticPolicy"
        _check_processes(spec, elastic, path, findings)
        if "elasticPolicy" not in spec:
            return
        check_fields(elastic, _ELASTIC_FIELDS, place, "PyTorchJob's elasticPolicy", findings)
        findings.all_below(_LOWEST, elastic, place)
        if "Worker" not in given:
            findings.error(place, "only workers are elastic, and there are none", "add a Worker", "replica-elastic")
        _check_rendezvous(elastic, place, findings)
        low, high = elastic.get("minReplicas"), elastic.get("maxReplicas")
        if is_given(elastic.get("metrics")) or (low is not None and high is not None and low != high):
            findings.notice(place, "the number of replicas does not change while a job runs on this machine")


def _declared_processes(spec: TrainingSpec) -> int:
    """Return how many processes a node has for WORLD_SIZE: a word counts as one, as in the operator."""
    text_ = str(spec.fields.get("nprocPerNode") or "")
    return int(text_) if text_.isdecimal() else 1


def _processes(spec: TrainingSpec, role: str) -> str:
    """Return how many processes `torchrun` starts on a node.

    On a cluster `auto`, `cpu` and `gpu` mean all cores or cards of a machine. The nodes of a job share this one, so
    each has as many processes as it requests cards, or one.
    """
    elastic = mapping(spec.fields.get("elasticPolicy")).get("nProcPerNode")
    wanted = str(spec.fields.get("nprocPerNode") or elastic or "auto")
    if wanted.isdecimal() or spec.total == 1:
        return wanted
    return str(max(1, Request.of_template(spec.roles[role].template).gpus))


def _nodes(spec: TrainingSpec, elastic: Mapping[str, Any]) -> str:
    """Return the number of nodes; an elastic job keeps its form where it means this number."""
    workers = spec.count(WORKER)
    low = elastic.get("minReplicas") or elastic.get("maxReplicas") or workers
    high = elastic.get("maxReplicas") or low
    if "elasticPolicy" in spec.fields and low == high == spec.total:
        return f"{low}:{high}"
    return str(spec.total)


def _elastic_variables(elastic: Mapping[str, Any], peers: Peers) -> dict[str, str]:
    host, port = peers.address(WORKER, 0)
    if given := elastic.get("rdzvHost"):
        host, port = str(given), int(elastic.get("rdzvPort") or peers.port.number)
    told = {"PET_RDZV_ENDPOINT": f"{host}:{port}", "PET_RDZV_BACKEND": str(elastic.get("rdzvBackend") or "c10d")}
    if elastic.get("maxRestarts") is not None:
        told["PET_MAX_RESTARTS"] = str(elastic["maxRestarts"])
    if elastic.get("rdzvId"):
        told["PET_RDZV_ID"] = str(elastic["rdzvId"])
    if pairs := elastic.get("rdzvConf"):
        told["PET_RDZV_CONF"] = ",".join(f"{pair.get('key')}={pair.get('value')}" for pair in pairs)
    if elastic.get("standalone"):
        told["PET_STANDALONE"] = ""
    return told


def _check_processes(spec: Mapping[str, Any], elastic: Mapping[str, Any], path: str, findings: Findings) -> None:
    of_elastic, of_job = elastic.get("nProcPerNode"), text(spec.get("nprocPerNode"))
    if is_given(of_elastic) and is_given(spec.get("nprocPerNode")):
        cause = "it is given beside nprocPerNode, which means the same"
        findings.error(f"{path}.elasticPolicy.nProcPerNode", cause, "keep nprocPerNode", "replica-processes")
    if of_job and of_job not in _PROCESSES and not of_job.isdecimal():
        remedy = f"use a number in quotes, or {either(_PROCESSES)}"
        findings.error(f"{path}.nprocPerNode", f"{shown(of_job)} is not known", remedy, "replica-processes")
    elif of_job in _PROCESSES:
        why = "the replicas share this machine: each starts as many processes as it requests GPUs, or one"
        findings.notice(f"{path}.nprocPerNode", why)


def _check_rendezvous(elastic: Mapping[str, Any], path: str, findings: Findings) -> None:
    backend = text(elastic.get("rdzvBackend"))
    if backend and backend not in _BACKENDS:
        remedy = did_you_mean(backend, _BACKENDS)
        findings.error(f"{path}.rdzvBackend", f"{shown(backend)} is not known", remedy, "replica-rendezvous")
    elif backend.startswith("etcd") and not is_given(elastic.get("rdzvHost")):
        cause = "there is no etcd on this machine that we know of"
        remedy = "use c10d, or give rdzvHost and rdzvPort"
        findings.error(f"{path}.rdzvBackend", cause, remedy, "replica-rendezvous")
    elif not is_given(elastic.get("rdzvHost")) and is_given(elastic.get("rdzvPort")):
        findings.notice(f"{path}.rdzvPort", "the first worker listens on a free port here, not on this one")
