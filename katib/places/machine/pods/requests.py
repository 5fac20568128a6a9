"""Resources of a machine, requests of pods for them, and their leases."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from katib.engine.runtime.objects import Object
from katib.model.quantities import parse_quantity

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")


SHARE_ANNOTATION = "katib.kubeflow.org/gpu-share"
"""On a pod template: how many pods may have each of its cards at once; with 4, a pod has a quarter of a card."""


MOST_SHARES = 64


VISIBLE_CARDS = "CUDA_VISIBLE_DEVICES"
"""Which cards a program may use; HIP, for cards of AMD, reads it, too."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The common limit of `cpu` or `memory` for all engines in a place such as a control group."""

    place: str
    resource: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Capacity:
    """The resources of this machine for pods: cores, bytes, and the identifiers of its GPUs.

    Attributes:
        cores: Which cores these are; empty if unknown.
        limits: Limits that other engines may share.
        is_scheduled: Whether a scheduler has the resources, and pods lease nothing here.
    """

    cpu: Decimal
    memory: Decimal
    gpus: tuple[str, ...] = ()
    cores: frozenset[int] = frozenset()
    limits: tuple[Limit, ...] = ()
    is_scheduled: bool = False

    @classmethod
    def of_machine(cls) -> Capacity:
        """Return the resources of the machine that this process may use."""
        cores = frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))
        memory = Decimal(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        return cls(Decimal(len(cores)), memory, _visible_gpus(), cores, (Limit("machine", "memory", memory),))


@dataclass(frozen=True, slots=True)
class Request:
    """The resource request of a pod.

    Attributes:
        cpu: Cores.
        memory: Bytes.
        gpus: How many cards.
        share: How many pods may have each of them at once.
    """

    cpu: Decimal = Decimal(0)
    memory: Decimal = Decimal(0)
    gpus: int = 0
    share: int = 1

    def __add__(self, other: Request) -> Request:
        gpus, share = self.gpus + other.gpus, max(self.share, other.share)
        return Request(self.cpu + other.cpu, self.memory + other.memory, gpus, share)

    def __sub__(self, other: Request) -> Request:
        return Request(self.cpu - other.cpu, self.memory - other.memory, self.gpus - other.gpus, self.share)

    @property
    def is_empty(self) -> bool:
        return not (self.cpu or self.memory or self.gpus)

    @classmethod
    def of_template(cls, template: Object) -> Request:
        """Return the request of a pod template: that of its containers together or of its largest init container."""
        spec, share = template.get("spec", {}), share_of(template)
        init, mains = spec.get("initContainers") or [], spec.get("containers") or []
        if not any(container.get("resources") for container in (*init, *mains)):
            return cls(share=share)
        sidecars = [c for c in init if c.get("restartPolicy") == "Always"]
        together = [_requested(c) for c in (*mains, *sidecars)]
        one_by_one = [_requested(c) for c in init if c not in sidecars]
        total = sum(together, cls())
        return cls(
            max([total.cpu, *(r.cpu for r in one_by_one)]),
            max([total.memory, *(r.memory for r in one_by_one)]),
            max([total.gpus, *(r.gpus for r in one_by_one)]),
            share,
        )

    def excess_over(self, capacity: Capacity) -> str:
        """Return why the machine can never grant it; empty when it can."""
        if capacity.is_scheduled:
            return ""
        pairs = (
            ("cpu", self.cpu, capacity.cpu),
            ("memory", self.memory, capacity.memory),
            ("GPU", Decimal(self.gpus), Decimal(len(capacity.gpus))),
        )
        return ", ".join(f"needs {need:f} {name}, this machine has {has:f}" for name, need, has in pairs if need > has)

    def __str__(self) -> str:
        parts = ((f"{self.cpu:f} cpu", self.cpu), (f"{self.memory:f} bytes of memory", self.memory))
        texts = [text for text, amount in parts if amount]
        shared = f" shared by {self.share}" if self.share > 1 else ""
        return ", ".join([*texts, f"{self.gpus} GPU{shared}"] if self.gpus else texts)


@dataclass(frozen=True, slots=True)
class Lease:
    """A granted request, with its GPUs and its holder."""

    request: Request
    gpus: tuple[str, ...] = ()
    holder: str = ""


@dataclass(frozen=True, slots=True)
class LeaseRefusal:
    """Why something cannot be leased now, empty if unknown yet, and when to look again."""

    reason: str
    again_seconds: float


def share_of(template: Mapping[str, Any]) -> int:
    """Return how many pods may have each card of a pod template at once.

    Raises:
        ValueError: The annotation is not a number from 1 to 64.
    """
    text = str(((template.get("metadata") or {}).get("annotations") or {}).get(SHARE_ANNOTATION, "1"))
    if not text.isdecimal() or not 1 <= int(text) <= MOST_SHARES:
        raise ValueError(f'"{text}" is not a whole number from 1 to {MOST_SHARES}')
    return int(text)


def card_words(cards: Sequence[str], node: str = "") -> str:
    """Return the node and cards of a pod, such as `on GPU 0` or `on n1 with GPU 0 and 1`; empty without both."""
    named = f"GPU {' and '.join(filter(None, (', '.join(cards[:-1]), cards[-1])))}" if cards else ""
    return f"on {' with '.join(filter(None, (node, named)))}" if node or named else ""


def _requested(container: Mapping[str, Any]) -> Request:
    resources = container.get("resources") or {}
    # A limit without a request is the request, as in Kubernetes.
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    gpus = sum((parse_quantity(amounts[name]) for name in GPU_RESOURCES if name in amounts), Decimal(0))
    if gpus % 1:  # a placeholder stood for it
        raise ValueError(f"{gpus:f} is not a whole number of GPUs")
    return Request(parse_quantity(amounts.get("cpu", 0)), parse_quantity(amounts.get("memory", 0)), int(gpus))


def _visible_gpus() -> tuple[str, ...]:
    visible = os.environ.get(VISIBLE_CARDS)
    if visible is not None:
        return tuple(part for part in visible.split(",") if part and part != "-1")
    found = list(Path("/proc/driver/nvidia/gpus").glob("*")) or list(Path("/dev").glob("nvidia[0-9]*"))
    return tuple(map(str, range(len(found) or _amd_cards())))


def _amd_cards(topology: Path = Path("/sys/class/kfd/kfd/topology/nodes")) -> int:
    """Return how many cards of AMD there are; processors are nodes without the number of a card."""
    count = 0
    for node in topology.glob("*/gpu_id"):
        with contextlib.suppress(OSError):
            count += node.read_text().strip() not in {"", "0"}
    return count
