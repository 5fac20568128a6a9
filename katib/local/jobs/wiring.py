"""Addresses of the pods of a job on this machine: the loopback interface, and a free port for each that listens.

A cluster gives every pod an address of its own, so the pods of any number of jobs listen on the same port. Here they
share one address, and no two of them may have the same port, whichever job they are of.
"""

from __future__ import annotations

import threading

from katib.local.jobs.kind import Address
from katib.services.plan import free_port

LOOPBACK = "127.0.0.1"


class PortTable:
    """The ports that jobs of this machine were promised. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: set[int] = set()

    def take(self) -> int:
        """Return a port that is free now and promised to nobody else."""
        with self._lock:
            port = free_port(self._taken)
            self._taken.add(port)
            return port

    def give_back(self, port: int) -> None:
        """Take back the promise."""
        with self._lock:
            self._taken.discard(port)


class LocalWiring:
    """Where the pods of one job listen, decided when it is first asked. Fits `katib.local.jobs.kind.Wiring`.

    Args:
        ports: Of all jobs.
    """

    def __init__(self, ports: PortTable) -> None:
        self._ports = ports
        self._addresses: dict[tuple[str, str], Address] = {}

    def address(self, name: str, _port: int, port_name: str = "") -> Address:
        """Return where a pod listens; the same answer until `renew` or `release`."""
        key = (name, port_name)
        if key not in self._addresses:
            self._addresses[key] = Address(LOOPBACK, self._ports.take())
        return self._addresses[key]

    def host(self, _name: str) -> str:
        """Return the address that all pods share."""
        return LOOPBACK

    def release(self) -> None:
        """Give all ports back: no process of the job is left, or all begin anew with other ports."""
        for address in self._addresses.values():
            self._ports.give_back(address.port)
        self._addresses.clear()
