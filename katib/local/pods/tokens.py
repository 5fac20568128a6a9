"""Resource requests as tokens: who may run at once on this machine.

Laws:

1. The sum of what is leased never exceeds the capacity.
2. First come, first served among the pods that request anything: a large one is not overtaken forever by small ones.
3. A pod that requests nothing never waits here; how many of them run is for parallelTrialCount to say.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from katib.api.quantities import parse_quantity
from katib.runtime.objects import Object

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")


@dataclass(frozen=True, slots=True)
class Capacity:
    """What this machine lends to pods: cores, bytes, and the identifiers of its GPUs."""

    cpu: Decimal
    memory: Decimal
    gpus: tuple[str, ...] = ()

    @classmethod
    def of_machine(cls) -> Capacity:
        """Return what the machine has and this process may use."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return cls(Decimal(cores), Decimal(memory), _visible_gpus())


@dataclass(frozen=True, slots=True)
class Request:
    """What a pod asks for."""

    cpu: Decimal = Decimal(0)
    memory: Decimal = Decimal(0)
    gpus: int = 0

    def __add__(self, other: Request) -> Request:
        return Request(self.cpu + other.cpu, self.memory + other.memory, self.gpus + other.gpus)

    @property
    def is_empty(self) -> bool:
        """Whether it asks for nothing."""
        return not (self.cpu or self.memory or self.gpus)

    @classmethod
    def of_template(cls, template: Object) -> Request:
        """Return what a pod template asks for: the larger of its containers together and its largest init container."""
        spec = template.get("spec", {})
        init = spec.get("initContainers") or []
        sidecars = [c for c in init if c.get("restartPolicy") == "Always"]
        together = [_requested(c) for c in (*(spec.get("containers") or []), *sidecars)]
        one_by_one = [_requested(c) for c in init if c not in sidecars]
        total = sum(together, cls())
        return cls(
            max([total.cpu, *(r.cpu for r in one_by_one)]),
            max([total.memory, *(r.memory for r in one_by_one)]),
            max([total.gpus, *(r.gpus for r in one_by_one)]),
        )

    def excess_over(self, capacity: Capacity) -> str:
        """Return why the machine can never grant it; empty when it can."""
        pairs = (
            ("cpu", self.cpu, capacity.cpu),
            ("memory", self.memory, capacity.memory),
            ("GPU", Decimal(self.gpus), Decimal(len(capacity.gpus))),
        )
        return ", ".join(f"needs {need:f} {name}, this machine has {has:f}" for name, need, has in pairs if need > has)

    def __str__(self) -> str:
        parts = ((f"{self.cpu:f} cpu", self.cpu), (f"{self.memory:f} bytes of memory", self.memory))
        texts = [text for text, amount in parts if amount]
        return ", ".join([*texts, f"{self.gpus} GPU"] if self.gpus else texts)


@dataclass(frozen=True, slots=True)
class Lease:
    """What a pod was granted, with the GPUs that are its own."""

    request: Request
    gpus: tuple[str, ...] = ()


class Tokens:
    """Grants leases. Used by one thread; only `waiting_reason` may be called from others."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self._cpu = capacity.cpu
        self._memory = capacity.memory
        self._gpus = deque(capacity.gpus)
        self._queue: deque[tuple[str, Request, Callable[[Lease], None]]] = deque()

    def ask(self, name: str, request: Request, granted: Callable[[Lease], None]) -> None:
        """Have `granted` called with a lease as soon as it is this pod's turn, at once if possible."""
        if request.is_empty:
            granted(Lease(request))
            return
        self._queue.append((name, request, granted))
        self._serve()

    def withdraw(self, name: str) -> None:
        """Forget a pod that waits; one that does not wait is fine."""
        self._queue = deque(item for item in self._queue if item[0] != name)
        self._serve()

    def give_back(self, lease: Lease) -> None:
        """Return a lease."""
        self._cpu += lease.request.cpu
        self._memory += lease.request.memory
        self._gpus.extend(lease.gpus)
        self._serve()

    def waiting_reason(self, name: str) -> str:
        """Return what a pod waits for; empty when it does not wait."""
        for ahead, (waiting, request, _) in enumerate(tuple(self._queue)):
            if waiting == name:
                free = f"{self._cpu:f} of {self.capacity.cpu:f} cpu"
                if self.capacity.gpus:
                    free += f" and {len(self._gpus)} of {len(self.capacity.gpus)} GPU"
                return (
                    f"waits for {request}; {free} and {self._memory:f} bytes of memory are free, {ahead} pods are ahead"
                )
        return ""

    def _serve(self) -> None:
        while self._queue:
            _, request, granted = self._queue[0]
            if request.cpu > self._cpu or request.memory > self._memory or request.gpus > len(self._gpus):
                return  # those behind it wait too, see law 2
            self._queue.popleft()
            self._cpu -= request.cpu
            self._memory -= request.memory
            granted(Lease(request, tuple(self._gpus.popleft() for _ in range(request.gpus))))


def _requested(container: Mapping[str, Any]) -> Request:
    resources = container.get("resources") or {}
    # A limit without a request is the request, as in Kubernetes.
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    gpus = sum(int(parse_quantity(amounts[name])) for name in GPU_RESOURCES if name in amounts)
    return Request(parse_quantity(amounts.get("cpu", 0)), parse_quantity(amounts.get("memory", 0)), gpus)


def _visible_gpus() -> tuple[str, ...]:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(part for part in visible.split(",") if part and part != "-1")
    cards: Iterable[Path] = Path("/proc/driver/nvidia/gpus").glob("*")
    return tuple(str(number) for number, _ in enumerate(cards))
