"""What the nodes of a TrainJob find in their environment about each other. Pure but for the ports that a wiring gives.

On a cluster the first node listens on port 29500 of its own address. Here it listens on the port of this job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from katib.local.jobs.jobset.resolve import NODE, TrainingSet
from katib.local.jobs.jobset.spec import host_name, subdomain_of
from katib.local.jobs.kind import Wiring

PORT: Final = 29500
HOST_FILE: Final = "mpi/hostfile"
HOST_DIRECTORY: Final = "/etc/mpi"
"""Where the host file of a launcher is in a container; all its slots are on this machine."""

_MPI_ALIKE: Final = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", "HYDRA_HOST_FILE")
"""The same for OpenMPI up to 4, for OpenMPI 5, and for what descends from MPICH."""

ADDRESSES: Final[Mapping[str, str]] = {
    "torch": "PET_MASTER_ADDR and PET_MASTER_PORT",
    "jax": "JAX_COORDINATOR_ADDRESS",
    "xgboost": "DMLC_TRACKER_URI and DMLC_TRACKER_PORT",
}
"""By policy, where a node finds the address of the first one."""

RESERVED: Final[Mapping[str, tuple[str, ...]]] = {
    "torch": ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    "xgboost": ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT", "DMLC_TASK_ID", "DMLC_NUM_WORKER"),
    "mpi": (
        "OMPI_MCA_orte_default_hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames",
        "OMPI_MCA_orte_set_default_slots",
        "OMPI_MCA_plm_rsh_args",
    ),
}
"""By policy, what a user cannot set."""


def node_variables(training: TrainingSet, index: int, wiring: Wiring) -> dict[str, str]:
    """Return the variables of the container `node` of a node.

    Args:
        training: The TrainJob.
        index: Which node.
        wiring: Knows where the first node listens.
    """
    if training.policy == "torch":
        host, port = _first(training, wiring)
        return {
            "PET_NNODES": str(training.nodes),
            "PET_NPROC_PER_NODE": training.processes,
            "PET_NODE_RANK": str(index),
            "PET_MASTER_ADDR": host,
            "PET_MASTER_PORT": port,
        }
    if training.policy == "jax":
        return {
            "JAX_NUM_PROCESSES": str(training.nodes),
            "JAX_PROCESS_ID": str(index),
            "JAX_COORDINATOR_ADDRESS": ":".join(_first(training, wiring)),
        }
    if training.policy == "xgboost":
        host, port = _first(training, wiring)
        return {
            "DMLC_TRACKER_URI": host,
            "DMLC_TRACKER_PORT": port,
            "DMLC_TASK_ID": str(index),
            "DMLC_NUM_WORKER": str(training.nodes * max(1, training.gpus)),
        }
    if training.policy == "mpi":
        return {
            **dict.fromkeys(_MPI_ALIKE, f"{HOST_DIRECTORY}/hostfile"),
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_set_default_slots": training.processes,
            "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        }
    return {}


def _first(training: TrainingSet, wiring: Wiring) -> tuple[str, str]:
    host = host_name(training.jobset, training.trainer or NODE, 0, 0)
    address = wiring.address(f"{host}.{subdomain_of(training.jobset)}", PORT)
    return address.host, str(address.port)
