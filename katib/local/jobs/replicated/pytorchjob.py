"""PyTorchJob: a master and workers that find each other by the variables of `torch.distributed` and `torchrun`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from katib.api.wording import either, shown
from katib.local.findings import Part, mapping
from katib.local.jobs.replicated.job import ReplicatedJob
from katib.local.jobs.replicated.rules import check_single, check_some, replicas_of
from katib.local.jobs.replicated.spec import Replicas, TrainingSpec
from katib.local.jobs.replicated.training_kind import MASTER, WORKER, Peers, Port
from katib.local.jobs.structure import Structure, structure
from katib.local.pods.tokens import Request
from katib.runtime.objects import Kind

_PROCESSES: Final = ("auto", "cpu", "gpu")
_BACKENDS: Final = ("c10d", "etcd", "etcd-v2")
_ELASTIC: Final = structure(
    integer="maxReplicas maxRestarts minReplicas nProcPerNode rdzvPort",
    list="metrics rdzvConf",
    text="rdzvBackend rdzvHost rdzvId",
    boolean="standalone",
)


class PyTorchJob(ReplicatedJob):
    """The kind PyTorchJob."""

    kind = Kind("kubeflow.org/v1", "PyTorchJob")
    replicas_field = "pytorchReplicaSpecs"
    types = ("Master", "Worker")
    container = "pytorch"
    port = Port("pytorchjob-port", 23456)
    restart_policy = "OnFailure"
    address_variables = "MASTER_ADDR and MASTER_PORT"
    older_operator = "pytorch"
    fields: ClassVar[Structure] = structure(text="nprocPerNode", elasticPolicy=_ELASTIC)

    def primary(self, spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        """Return the master, else the first worker."""
        return ((MASTER if spec.count(MASTER) else WORKER, 0),)

    def has_succeeded(self, replicas: Replicas) -> bool:
        """Return whether the master has succeeded, without one all workers; of elastic workers one is enough."""
        if replicas.spec.count(MASTER):
            return replicas.has_succeeded(MASTER, 0)
        if replicas.spec.fields.get("elasticPolicy") is not None:
            return any(replicas.has_succeeded(WORKER, i) for i in range(replicas.spec.count(WORKER)))
        return replicas.all_succeeded(WORKER)

    def waits_for(self, spec: TrainingSpec, role: str) -> str:
        """Return the master for workers, whose init container waits for it on a cluster."""
        return MASTER if role == WORKER and spec.count(MASTER) else ""

    def variables(self, peers: Peers, role: str, index: int) -> Mapping[str, str]:
        """Return the variables of a node; on this machine all nodes have one address."""
        spec, variables = peers.spec, {"PYTHONUNBUFFERED": "1"}
        elastic = mapping(spec.fields.get("elasticPolicy"))
        if spec.count(MASTER):
            host, port = peers.address(MASTER, 0)
            rank = str(0 if role == MASTER else index + 1)
            variables |= {
                "MASTER_PORT": str(port),
                "PET_MASTER_PORT": str(port),
                "MASTER_ADDR": host,
                "PET_MASTER_ADDR": host,
                "WORLD_SIZE": str(spec.total * _declared_processes(spec)),
                "RANK": rank,
                "PET_NODE_RANK": rank,
            }
        variables["PET_NPROC_PER_NODE"] = _processes(spec, role)
        variables["PET_NNODES"] = _nodes(spec, elastic)
        return {**variables, **(_elastic_variables(elastic, peers) if "elasticPolicy" in spec.fields else {})}

    def check_spec(self, spec: Part) -> None:
        """Check the master's count, the number of processes and the elastic policy."""
        check_single(self, spec, "Master")
        check_some(self, spec, "Worker")
        elastic = spec["elasticPolicy"]
        _check_processes(spec["nprocPerNode"], elastic["nProcPerNode"])
        if "elasticPolicy" not in spec.fields:
            return
        elastic.at_least(maxReplicas=1, maxRestarts=0, minReplicas=1, nProcPerNode=1, rdzvPort=1)
        if "Worker" not in replicas_of(self, spec):
            elastic.error("only workers are elastic, and there are none", "add a Worker", "replica-elastic")
        _check_rendezvous(elastic)
        low, high = elastic["minReplicas"].value, elastic["maxReplicas"].value
        if elastic["metrics"].is_given or (low is not None and high is not None and low != high):
            elastic.notice("the number of replicas does not change while a job runs on this machine")


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
    variables = {"PET_RDZV_ENDPOINT": f"{host}:{port}", "PET_RDZV_BACKEND": str(elastic.get("rdzvBackend") or "c10d")}
    if elastic.get("maxRestarts") is not None:
        variables["PET_MAX_RESTARTS"] = str(elastic["maxRestarts"])
    if elastic.get("rdzvId"):
        variables["PET_RDZV_ID"] = str(elastic["rdzvId"])
    if pairs := elastic.get("rdzvConf"):
        variables["PET_RDZV_CONF"] = ",".join(f"{pair.get('key')}={pair.get('value')}" for pair in pairs)
    if elastic.get("standalone"):
        variables["PET_STANDALONE"] = ""
    return variables


def _check_processes(of_job: Part, of_elastic: Part) -> None:
    if of_job.is_given:
        cause = "it is given beside nprocPerNode, which means the same"
        of_elastic.refuse(cause, "keep nprocPerNode", "replica-processes")
    if of_job.text in _PROCESSES:
        of_job.notice("the replicas share this machine: each starts as many processes as it requests GPUs, or one")
    elif of_job.text and not of_job.text.isdecimal():
        remedy = f"use a number in quotes, or {either(_PROCESSES)}"
        of_job.error(f"{shown(of_job.text)} is not known", remedy, "replica-processes")


def _check_rendezvous(elastic: Part) -> None:
    backend, has_host = elastic["rdzvBackend"], elastic["rdzvHost"].is_given
    backend.spelled(_BACKENDS, "replica-rendezvous")
    if backend.text in _BACKENDS[1:] and not has_host:
        cause = "there is no etcd on this machine that we know of"
        backend.error(cause, "use c10d, or give rdzvHost and rdzvPort", "replica-rendezvous")
    elif backend.text in {"", _BACKENDS[0]} and not has_host:
        elastic["rdzvPort"].note("the first worker listens on a free port here, not on this one")
