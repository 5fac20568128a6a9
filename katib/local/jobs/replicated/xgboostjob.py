"""XGBoostJob: a master with the tracker, and workers; also used for LightGBM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from katib.local.findings import Findings, integer, mapping
from katib.local.jobs.replicated.replicas import Replicas
from katib.local.jobs.replicated.rules import check_single
from katib.local.jobs.replicated.spec import TrainingSpec, replicas_by_type
from katib.local.jobs.replicated.training_kind import Peers, Port, TrainingKind
from katib.runtime.objects import Kind

MASTER: Final = "master"
WORKER: Final = "worker"

PEERS_VARIABLE: Final = "KATIB_PEERS"
"""Host and port of every replica by rank, joined by commas. The operator tells one port for all workers, which have
addresses of their own on a cluster; here they share one."""


class XGBoostJob(TrainingKind):
    """The kind XGBoostJob."""

    kind = Kind("kubeflow.org/v1", "XGBoostJob")
    replicas_field = "xgbReplicaSpecs"
    types = ("Master", "Worker")
    container = "xgboost"
    port = Port("xgboostjob-port", 9999)
    address_variables = "MASTER_ADDR and MASTER_PORT"
    older_operator = "xgboost"

    def primary(self, _spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        """Return the master."""
        return ((MASTER, 0),)

    def listeners(self, spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        """Return all replicas."""
        return spec.wanted

    def has_succeeded(self, replicas: Replicas) -> bool:
        """Return whether the master has succeeded."""
        return replicas.has_succeeded(MASTER, 0)

    def variables(self, peers: Peers, role: str, index: int) -> Mapping[str, str]:
        """Return rank, size and addresses; a worker is told its own port as that of the workers."""
        spec = peers.spec
        host, port = peers.address(MASTER, 0)
        told = {
            "MASTER_PORT": str(port),
            "MASTER_ADDR": host,
            "WORLD_SIZE": str(spec.total),
            "RANK": str(0 if role == MASTER else index + 1),
            "PYTHONUNBUFFERED": "1",
        }
        if spec.total == 1:
            return told
        workers = [peers.address(WORKER, i) for i in range(spec.count(WORKER))]
        own = workers[index if role == WORKER else 0]
        everybody = [(host, port), *workers]
        return {
            **told,
            "WORKER_PORT": str(own.port),
            "WORKER_ADDRS": ",".join(worker.host for worker in workers),
            PEERS_VARIABLE: ",".join(f"{host}:{port}" for host, port in everybody),
        }

    def check(self, spec: Mapping[str, Any], path: str, findings: Findings) -> None:
        """Check that there is one master, and say what LightGBM needs here."""
        given = replicas_by_type(mapping(spec.get(self.replicas_field)), self.types)
        check_single(self, given, "Master", path, findings, required=True)
        key, worker = given.get("Worker", ("", None))
        count = integer(mapping(worker).get("replicas")) if worker is not None else 0
        if count is not None and count > 1:
            why = "the workers share one address here and each is told a WORKER_PORT of its own; LightGBM finds the"
            why += f" addresses of all in {PEERS_VARIABLE}"
            findings.notice(f"{path}.{self.replicas_field}.{key}", why)
