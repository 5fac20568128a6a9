"""JAXJob: equal workers, of which the first is the coordinator."""

from __future__ import annotations

from collections.abc import Mapping

from katib.local.findings import Part
from katib.local.jobs.replicated.replicas import Replicas
from katib.local.jobs.replicated.rules import check_some
from katib.local.jobs.replicated.spec import TrainingSpec
from katib.local.jobs.replicated.training_kind import WORKER, Peers, Port, TrainingKind
from katib.runtime.objects import Kind


class JAXJob(TrainingKind):
    """The kind JAXJob."""

    kind = Kind("kubeflow.org/v1", "JAXJob")
    replicas_field = "jaxReplicaSpecs"
    types = ("Worker",)
    container = "jax"
    port = Port("jaxjob-port", 6666)
    address_variables = "COORDINATOR_ADDRESS and COORDINATOR_PORT"

    def primary(self, _spec: TrainingSpec) -> tuple[tuple[str, int], ...]:
        """Return the first worker."""
        return ((WORKER, 0),)

    def has_succeeded(self, replicas: Replicas) -> bool:
        """Return whether all workers have succeeded."""
        return replicas.all_succeeded(WORKER)

    def variables(self, peers: Peers, _role: str, index: int) -> Mapping[str, str]:
        """Return what a program hands to `jax.distributed.initialize`."""
        host, port = peers.address(WORKER, 0)
        return {
            "PYTHONUNBUFFERED": "1",
            "COORDINATOR_PORT": str(port),
            "COORDINATOR_ADDRESS": host,
            "NUM_PROCESSES": str(peers.spec.total),
            "PROCESS_ID": str(index),
        }

    def check(self, spec: Part) -> None:
        """Check that there is a worker."""
        check_some(self, spec, "Worker")
