"""Training kinds: TFJob, XGBoostJob (also used for LightGBM), PaddleJob, JAXJob and PyTorchJob."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from katib.engine.runtime.objects import Kind
from katib.model.wording import did_you_mean, either, shown
from katib.places.machine.findings import Part, Structure, mapping, structure
from katib.places.machine.jobs.gang.spec import Success
from katib.places.machine.jobs.kind import NewPod, container_names
from katib.places.machine.jobs.replicated.job import ReplicatedJob
from katib.places.machine.jobs.replicated.rules import check_single, check_some, replicas_of
from katib.places.machine.jobs.replicated.spec import TrainingSpec
from katib.places.machine.jobs.replicated.training_kind import MASTER, WORKER, Peers, Port
from katib.places.machine.pods.requests import Request

CHIEFS: Final = ("chief", "master")
_ALL_WORKERS: Final = "AllWorkers"


class TFJob(ReplicatedJob):
    """TFJob: parameter servers, workers, a chief and an evaluator that find each other by `TF_CONFIG`."""

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
        return spec.places(chief) if chief else ((WORKER, 0),)

    def listeners(self, spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        return spec.wanted

    def success(self, spec: TrainingSpec) -> Success:
        """Return the chief, without one the first worker, or all workers if the success policy demands it."""
        if chief := _chief(spec):
            return Success(spec.places(chief))
        if spec.fields.get("successPolicy") == _ALL_WORKERS:
            return Success(spec.places(WORKER))
        return Success(((WORKER, 0),))

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
        return tuple(name for name in container_names(template) if name == self.container)

    def check_spec(self, spec: Part) -> None:
        """Check that the job can end, and refuse fields that need a cluster."""
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


PEERS_VARIABLE: Final = "KATIB_PEERS"
"""Host and port of every replica by rank, joined by commas. The operator names one port for all workers, which
have addresses of their own on a cluster; here they share one."""


class XGBoostJob(ReplicatedJob):
    """XGBoostJob: a master with the tracker, and workers."""

    kind = Kind("kubeflow.org/v1", "XGBoostJob")
    replicas_field = "xgbReplicaSpecs"
    types = ("Master", "Worker")
    container = "xgboost"
    port = Port("xgboostjob-port", 9999)
    address_variables = "MASTER_ADDR and MASTER_PORT"
    older_operator = "xgboost"

    def primary(self, _spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        return ((MASTER, 0),)

    def listeners(self, spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        return spec.wanted

    def success(self, _spec: TrainingSpec) -> Success:
        return Success(((MASTER, 0),))

    def variables(self, peers: Peers, role: str, index: int) -> Mapping[str, str]:
        """Return rank, size and addresses; a worker gets its own port as that of the workers."""
        spec = peers.spec
        host, port = peers.address(MASTER, 0)
        variables = {
            "MASTER_PORT": str(port),
            "MASTER_ADDR": host,
            "WORLD_SIZE": str(spec.total),
            "RANK": str(0 if role == MASTER else index + 1),
            "PYTHONUNBUFFERED": "1",
        }
        if spec.total == 1:
            return variables
        workers = [peers.address(WORKER, i) for i in range(spec.count(WORKER))]
        own = workers[index if role == WORKER else 0]
        return {
            **variables,
            "WORKER_PORT": str(own.port),
            "WORKER_ADDRS": ",".join(worker.host for worker in workers),
            PEERS_VARIABLE: ",".join(f"{host}:{port}" for host, port in [(host, port), *workers]),
        }

    def check_spec(self, spec: Part) -> None:
        """Check that there is one master, and explain the ports for LightGBM."""
        check_single(self, spec, "Master", required=True)
        worker = replicas_of(self, spec).get("Worker")
        count = 0 if worker is None or worker.value is None else worker["replicas"].integer
        if worker is not None and count is not None and count > 1:
            why = "the workers share one address here and each gets a WORKER_PORT of its own; LightGBM finds the"
            worker.notice(f"{why} addresses of all in {PEERS_VARIABLE}")


class PaddleJob(ReplicatedJob):
    """PaddleJob: workers alone (collective mode), or with masters that serve parameters."""

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
        return spec.places(MASTER)

    def listeners(self, spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        """Return the first master, without one the first worker."""
        return ((MASTER if spec.count(MASTER) else WORKER, 0),)

    def success(self, spec: TrainingSpec) -> Success:
        """Return all masters, without one all workers."""
        return Success(spec.places(MASTER) or spec.places(WORKER))

    def variables(self, peers: Peers, role: str, index: int) -> Mapping[str, str]:
        """Return the variables of `paddle.distributed.launch`.

        The operator leaves it to the launchers that the address first worker becomes rank 0: the others are not at the
        of the rendezvous. Here all are, and one of them would win by chance, so each gets its rank.
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
        """Return a pod whose launcher has a directory of its own for the output of its processes.

        The launcher prints that again: replicas and trials that share a directory print each other's metrics.
        """
        return replace(pod, defaults={**pod.defaults, "PADDLE_LOG_DIR": f"log/{pod.name}"})

    def check_spec(self, spec: Part) -> None:
        """Check that there is a replica, and note fields that need a cluster."""
        check_some(self, spec, *self.types)
        elastic = spec["elasticPolicy"]
        elastic.at_least(maxReplicas=1, maxRestarts=0, minReplicas=1)
        if elastic["metrics"].is_given or elastic["minReplicas"].value != elastic["maxReplicas"].value:
            elastic.notice("the number of replicas does not change while a job runs on this machine")


class JAXJob(ReplicatedJob):
    """JAXJob: equal workers, of which the first is the coordinator."""

    kind = Kind("kubeflow.org/v1", "JAXJob")
    replicas_field = "jaxReplicaSpecs"
    types = ("Worker",)
    container = "jax"
    port = Port("jaxjob-port", 6666)
    address_variables = "COORDINATOR_ADDRESS and COORDINATOR_PORT"

    def primary(self, _spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        return ((WORKER, 0),)

    def success(self, spec: TrainingSpec) -> Success:
        return Success(spec.places(WORKER))

    def variables(self, peers: Peers, _role: str, index: int) -> Mapping[str, str]:
        """Return the arguments of `jax.distributed.initialize`."""
        host, port = peers.address(WORKER, 0)
        return {
            "PYTHONUNBUFFERED": "1",
            "COORDINATOR_PORT": str(port),
            "COORDINATOR_ADDRESS": host,
            "NUM_PROCESSES": str(peers.spec.total),
            "PROCESS_ID": str(index),
        }

    def check_spec(self, spec: Part) -> None:
        check_some(self, spec, "Worker")


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

    def success(self, spec: TrainingSpec) -> Success:
        """Return the master, without one all workers; one of elastic workers is enough."""
        if spec.count(MASTER):
            return Success(((MASTER, 0),))
        return Success(spec.places(WORKER), needs_all=spec.fields.get("elasticPolicy") is None)

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
    """Return the number of nodes; an elastic job keeps its form if it means this number."""
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
