"""The network of the pods of a job, and the addresses that they have in it.

A cluster gives every pod an address of its own, so the pods of any number of jobs listen on the same port. Pods in
their images may have a network of their own, too. All others share the loopback interface, on which no two of them may
have the same port, whichever job they are of.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from katib.engine.algorithm_services.plan import free_port
from katib.engine.runtime.objects import Kind, Object
from katib.model.types import CollectorKind
from katib.places.machine.findings import containers_of, mapping, mappings
from katib.places.machine.jobs.batch.job import JOB
from katib.places.machine.jobs.kind import Address
from katib.places.machine.pods.environment import HOST_NETWORK
from katib.places.machine.pods.place import node_mark

if TYPE_CHECKING:
    from katib.places.machine.pods.images import ImageRuntime

PUSHES_NOTHING: Final = frozenset({CollectorKind.STDOUT, CollectorKind.NONE})
"""Collectors whose programs have nothing to push and no request to answer: `katib.report` prints there."""

_UID_DIGITS = 8
_NODE_PORTS = range(20_000, 30_000)
"""Below those that systems give to connections."""

LOOPBACK = "127.0.0.1"


def network_of(
    job: Object,
    kind: Kind,
    templates: Sequence[Mapping[str, Any]],
    images: ImageRuntime,
    *,
    needs_machine: bool,
) -> str:
    """Return the network of the pods of a job: one of its own, in which they have names, or that of the machine.

    Args:
        kind: Pods of a Job do not know each other.
        templates: Of its pods. Containers of one pod reach each other at 127.0.0.1, and each has a network address of
            its own: if several run side by side, all are on the machine's network.
        needs_machine: Whether something in the pods calls the engine, or is called by it, at 127.0.0.1.
    """
    if not images.has_names or needs_machine or not may_be_named(kind, templates):
        return HOST_NETWORK
    return f"katib-{job['metadata']['name']}-{job['metadata']['uid'][:_UID_DIGITS]}"


def may_be_named(kind: Kind, templates: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether pods of a job can have names in a network of their own, as far as the job says it."""
    return kind != JOB and not any(map(_is_on_host, templates))


def _is_on_host(template: Mapping[str, Any]) -> bool:
    spec = mapping(template.get("spec"))
    if spec.get("hostNetwork"):
        return True
    sidecars = [c for _, c in mappings(spec.get("initContainers")) if c.get("restartPolicy") == "Always"]
    return len(containers_of(spec)) + len(sidecars) > 1


class NamedWiring:
    """Pods that have a network of their own: their names and the ports of a cluster. Fits `Wiring`."""

    def address(self, name: str, port: int, _port_name: str = "") -> Address:
        return Address(name, port)

    def host(self, name: str) -> str:
        return name

    def ports(self) -> tuple[tuple[str, str, int], ...]:
        """Return nothing: the ports are those of a cluster."""
        return ()

    def restore(self, ports: Iterable[tuple[str, str, int]]) -> None:
        """Do nothing, as above."""

    def release(self) -> None:
        """Keep everything: names are free as soon as their containers are gone."""


class PortTable:
    """The ports that jobs of this machine were promised. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[int] = set()

    def take(self) -> int:
        """Return a port that is free now and promised to no other job."""
        with self._lock:
            port = self._choose(self._taken)
            self._taken.add(port)
            return port

    @staticmethod
    def _choose(taken: set[int]) -> int:
        return free_port(taken)

    def promise(self, port: int) -> None:
        """Give a port to no other job: pods of one that went on without an engine listen there."""
        with self._lock:
            self._taken.add(port)

    def give_back(self, port: int) -> None:
        """Take back the promise."""
        with self._lock:
            self._taken.discard(port)


class LocalWiring:
    """The addresses of the pods of one job, chosen at their first use. Fits `katib.places.machine.jobs.kind.Wiring`."""

    def __init__(self, ports: PortTable) -> None:
        self._ports = ports
        self._addresses: dict[tuple[str, str], Address] = {}

    def address(self, name: str, _port: int, port_name: str = "") -> Address:
        """Return the address of a pod; the same answer until `release`."""
        key = (name, port_name)
        if key not in self._addresses:
            self._addresses[key] = Address(self.host(name), self._ports.take())
        return self._addresses[key]

    def host(self, name: str) -> str:  # noqa: ARG002 - of the protocol
        """Return the address that all pods share."""
        return LOOPBACK

    def ports(self) -> tuple[tuple[str, str, int], ...]:
        """Return the chosen ports: the name of a pod, that of its port, and the port."""
        return tuple((name, port_name, address.port) for (name, port_name), address in self._addresses.items())

    def restore(self, ports: Iterable[tuple[str, str, int]]) -> None:
        """Take over the ports that an earlier engine chose."""
        for name, port_name, port in ports:
            self._ports.promise(port)
            self._addresses[name, port_name] = Address(self.host(name), port)

    def release(self) -> None:
        """Give all ports back: no process of the job is left, or all begin again with other ports."""
        for address in self._addresses.values():
            self._ports.give_back(address.port)
        self._addresses.clear()


class PlacedWiring(LocalWiring):
    """Pods on nodes that are known only when they run: a mark stands for each.

    Ports are chosen at random, and differ for all pods of a job: two of them may be on one node.
    """

    def __init__(self) -> None:
        super().__init__(_NodePorts())

    def host(self, name: str) -> str:
        return node_mark(name)


class _NodePorts(PortTable):
    @staticmethod
    def _choose(taken: set[int]) -> int:
        return secrets.choice([port for port in _NODE_PORTS if port not in taken])
