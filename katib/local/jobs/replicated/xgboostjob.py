"""XGBoostJob: a master with the tracker, and workers; also used for LightGBM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from katib.local.findings import Part
from katib.local.jobs.replicated.replicas import Replicas
from katib.local.jobs.replicated.rules import check_single, replicas_of
from katib.local.jobs.replicated.spec import TrainingSpec
from katib.local.jobs.replicated.training_kind import MASTER, WORKER, Peers, Port, TrainingKind
from katib.runtime.objects import Kind

PEERS_VARIABLE: Final = "KATIB_PEERS"
"""Host and port of every replica by rank, joined by commas. The operator names one port for all workers, which
have addresses of their own on a cluster; here they share one."""


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

    def check(self, spec: Part) -> None:
        """Check that there is one master, and say what LightGBM needs here."""
        check_single(self, spec, "Master", required=True)
        worker = replicas_of(self, spec).get("Worker")
        count = 0 if worker is None or worker.value is None else worker["replicas"].integer
        if worker is not None and count is not None and count > 1:
            why = "the workers share one address here and each gets a WORKER_PORT of its own; LightGBM finds the"
            worker.notice(f"{why} addresses of all in {PEERS_VARIABLE}")
