"""Launchers of MPI, which start the processes of all nodes: on one machine `mpirun` enters no pod.

A launcher finds one line in its host file, for this machine with the slots of all nodes. Nodes that only wait to be
entered are not started; their requests are leased to the launcher, whose processes do their work. In Slurm, its job
writes its nodes into that file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, Final

from katib.model.quantities import parse_quantity
from katib.model.templates import has_placeholder
from katib.places.machine.findings import containers_of, mapping, texts
from katib.places.machine.jobs.kind import NewPod

_MOUNT: Final = "/etc/mpi"
_DIRECTORY: Final = "mpi"
"""Stands for the mount in the pod's directory."""

HOST_FILE_VARIABLES: Final = {
    "OMPI_MCA_orte_default_hostfile": f"{_MOUNT}/hostfile",
    "PRTE_MCA_prte_default_hostfile": f"{_MOUNT}/hostfile",
    "HYDRA_HOST_FILE": f"{_MOUNT}/hydra-hostfile",
    "I_MPI_HYDRA_HOST_FILE": f"{_MOUNT}/hydra-hostfile",
}
"""The variables for the host file of each implementation: OpenMPI up to 4 and from 5 on, MPICH, Intel MPI."""

_WAITING_PROGRAMS: Final = frozenset({"sleep", "sshd"})


def only_waits(container: Mapping[str, Any]) -> bool:
    """Return whether the container of a node has no work of its own: it waits for `mpirun` to enter it."""
    command = texts(container.get("command"))
    return not command or PurePosixPath(command[0]).name in _WAITING_PROGRAMS


def with_host_files(pod: NewPod, slots: int) -> NewPod:
    """Return a pod with the files that its operator mounts at `/etc/mpi`: those of a launcher with these slots."""
    files = {
        f"{_DIRECTORY}/hostfile": f"localhost slots={slots}\n",
        f"{_DIRECTORY}/hydra-hostfile": f"localhost:{slots}\n",
        f"{_DIRECTORY}/discover_hosts.sh": f"#!/bin/sh\necho localhost:{slots}\n",
    }
    rewrites = {**pod.rewrites, _MOUNT: _DIRECTORY}
    return replace(pod, files=files if slots else {}, rewrites=rewrites, processes=max(1, slots), slots=slots)


Workers = Iterable[tuple[Mapping[str, Any], int]]
"""Specs of pods that are not started, each with the number of such pods."""


def with_resources_of(launcher: Mapping[str, Any], workers: Workers) -> Mapping[str, Any]:
    """Return the pod spec of a launcher whose first container requests the resources of all workers besides its own.

    A limit of that container grows as its request does.

    Args:
        launcher: The spec of its pod; may be malformed or hold placeholders.
        workers: The pods whose work it does; the same.
    """
    containers = containers_of(launcher)
    needed: dict[str, Decimal] = {}
    added: dict[str, Decimal] = {}
    for container in containers[:1]:
        _add(needed, container, 1)
    for pod, count in workers:
        for container in containers_of(pod):
            _add(added, container, count)
    if not containers or not added:
        return launcher
    resources = mapping(containers[0].get("resources"))
    total = {name: needed.get(name, Decimal(0)) + added.get(name, Decimal(0)) for name in {**needed, **added}}
    grown = {"requests": {name: _text(amount) for name, amount in total.items()}}
    if limits := mapping(resources.get("limits")):
        grown["limits"] = {
            name: limit if has_placeholder(limit) else _text(amount_of(limit) + added.get(name, Decimal(0)))
            for name, limit in limits.items()
        }
    first = {**containers[0], "resources": {**resources, **grown}}
    return {**launcher, "containers": [first, *containers[1:]]}


def _add(amounts: dict[str, Decimal], container: Mapping[str, Any], times: int) -> None:
    resources = mapping(container.get("resources"))
    given = {**mapping(resources.get("limits")), **mapping(resources.get("requests"))}
    for name, amount in given.items():
        if not has_placeholder(amount):
            amounts[name] = amounts.get(name, Decimal(0)) + times * amount_of(amount)


def amount_of(value: object) -> Decimal:
    """Return a quantity, 0 if it is malformed, which admission reports."""
    try:
        return parse_quantity(value)
    except (ValueError, ArithmeticError):
        return Decimal(0)


def _text(amount: Decimal) -> str:
    return f"{amount.normalize():f}"
