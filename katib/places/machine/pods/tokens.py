"""Resource requests as tokens: the pods that may run at once on this machine.

Laws:

1. The sum of leases never exceeds the capacity, nor, with those of other engines, the resources of the machine.
   A card has one pod, or some that share it by the same number; other engines find it taken then.
2. First come, first served among the pods that request anything: a large one is not overtaken forever by small ones.
3. A pod that requests nothing never waits here; how many of them run is for parallelTrialCount to say.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from katib.engine.runtime.clock import Clock, SystemClock
from katib.engine.runtime.objects import Object
from katib.model.quantities import parse_quantity

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")

SHARE_ANNOTATION = "katib.kubeflow.org/gpu-share"
"""On a pod template: how many pods may have each of its cards at once; with 4, a pod has a quarter of a card."""

MOST_SHARES = 64

VISIBLE_CARDS = "CUDA_VISIBLE_DEVICES"
"""Which cards a program may use; HIP, for cards of AMD, reads it, too."""

LOOK_SECONDS = 0.5
"""How often a pod that waits looks whether another engine gave something back."""


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
        """Whether it asks for nothing."""
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


class Table(Protocol):
    """The leases of all engines of this machine, as in `leases.LeaseTable`."""

    def take(self, holder: str, request: Request, free: Sequence[str], since: float) -> tuple[str, ...] | LeaseRefusal:
        """Lease something, of these cards; or return why not."""

    def keep(self, holder: str, request: Request, cards: Sequence[str]) -> None:
        """Lease the resources of a pod that outlived its engine."""

    def give_back(self, lease: Lease) -> None:
        """Return a lease."""

    def wait(self, holder: str, request: Request, since: float) -> None:
        """Publish the request of the first waiting pod, every time that it looks again."""

    def wait_no_more(self) -> None:
        """Say that no pod waits."""

    def flush(self) -> bool:
        """Publish changes to the others; return False if that has to be tried again."""

    def held_elsewhere(self) -> frozenset[str]:
        """Return the cards that other engines hold now."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A pod, or a gang of them, in the queue; `since` is wall time, which engines compare."""

    name: str
    request: Request
    granted: Callable[[Lease], None]
    holder: str
    waits: Callable[[], None]
    since: float


@dataclass(slots=True)
class _SharedCard:
    """A card that pods share.

    Attributes:
        share: How many of them at once.
        count: How many have it.
        lease: As the table of all engines knows it: that of the first of them.
    """

    share: int
    count: int
    lease: Lease


class Tokens:
    """Grants leases. Used by one thread; only `waiting_reason` may be called from others.

    Args:
        capacity: The capacity of this machine.
        table: The leases of other engines; None: there are no others.
        later: Calls a function on this thread after some seconds; needed with a table.
        clock: Time.
    """

    def __init__(
        self,
        capacity: Capacity,
        table: Table | None = None,
        later: Callable[[float, Callable[[], None]], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.capacity = capacity
        self._table = table
        self._later = later
        self._clock = clock or SystemClock()
        self._cpu = capacity.cpu
        self._memory = capacity.memory
        self._gpus = deque(capacity.gpus)
        self._shared: dict[str, _SharedCard] = {}
        self._queue: deque[_Waiting] = deque()
        self._reason = ""
        self._looks_at: float | None = None

    def ask(
        self,
        name: str,
        request: Request,
        granted: Callable[[Lease], None],
        *,
        holder: str = "",
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        """Have `granted` called with a lease as soon as it is this pod's turn, at once if possible.

        Args:
            name: Of the pod.
            request: Its request.
            granted: Takes the lease.
            holder: For whom, as shown to users of other engines.
            waits: Called when the reason changes for which the pod waits.
        """
        if request.is_empty:
            granted(Lease(request))
            return
        self._queue.append(_Waiting(name, request, granted, holder, waits, self._clock.now().timestamp()))
        self._serve()

    def keep(self, request: Request, gpus: Sequence[str], holder: str = "") -> Lease:
        """Return the lease of a pod that outlived its engine: it is unchanged."""
        shares = self._shares_left(request)
        cards = tuple(card for card in gpus if card in self._gpus or card in shares)
        whole = tuple(card for card in cards if card not in shares)
        if request.share > 1:
            request = replace(request, gpus=len(cards))
        if self._table is not None and not request.is_empty:
            self._table.keep(holder, replace(request, gpus=request.gpus - len(cards) + len(whole)), whole)
        return self._lease(request, cards, holder)

    def withdraw(self, name: str) -> None:
        """Forget a pod that waits; one that does not wait is fine."""
        left = deque(waiting for waiting in self._queue if waiting.name != name)
        if len(left) < len(self._queue):
            self._queue = left
            self._serve()

    def give_back(self, lease: Lease) -> None:
        """Return a lease."""
        if lease.request.is_empty:
            return
        self._cpu += lease.request.cpu
        self._memory += lease.request.memory
        if lease.request.share > 1:
            for card in lease.gpus:
                self._leave(card)
            lease = replace(lease, request=replace(lease.request, gpus=0), gpus=())
        self._gpus.extend(lease.gpus)
        if self._table is not None and not lease.request.is_empty:
            self._table.give_back(lease)
        self._serve()

    def free_gpus(self) -> tuple[str, ...]:
        """Return the cards that are not leased, here or elsewhere."""
        elsewhere = frozenset[str]() if self._table is None or not self._gpus else self._table.held_elsewhere()
        return tuple(card for card in self.capacity.gpus if card in self._gpus and card not in elsewhere)

    def waiting_reason(self, name: str) -> str:
        """Return the reason for which a pod waits; empty if it does not wait."""
        reason = self._reason
        for ahead, waiting in enumerate(tuple(self._queue)):
            if waiting.name != name:
                continue
            before = f", {ahead} {'pod is' if ahead == 1 else 'pods are'} ahead" if ahead else ""
            if reason:
                return f"waits for {waiting.request}{before}; the first {reason}" if ahead else reason
            request, total = waiting.request, self.capacity
            free = (
                f"{self._cpu.normalize():f} of {total.cpu.normalize():f} cpu" if request.cpu else "",
                f"{self._memory:f} of {total.memory:f} bytes of memory" if request.memory else "",
                f"{len(self._gpus) + len(self._shares_left(request))} of {len(total.gpus)} GPU" if request.gpus else "",
            )
            return f"waits for {request}; {' and '.join(filter(None, free))} are free{before}"
        return ""

    def _serve(self) -> None:
        while self._queue:
            first, reason, again = self._queue[0], "", LOOK_SECONDS
            request, free = first.request, tuple(self._gpus)
            shares = self._shares_left(request)[: request.gpus]
            whole = replace(request, gpus=request.gpus - len(shares))
            if request.cpu <= self._cpu and request.memory <= self._memory and whole.gpus <= len(free):
                taken: tuple[str, ...] | LeaseRefusal = free[: whole.gpus]
                if self._table is not None and not whole.is_empty:
                    taken = self._table.take(first.holder, whole, free, first.since)
                if not isinstance(taken, LeaseRefusal):
                    self._queue.popleft()
                    self._reason = ""
                    first.granted(self._lease(request, (*shares, *taken), first.holder))
                    continue
                reason, again = taken.reason or self._reason, taken.again_seconds
            # those behind it wait too, see law 2
            if reason != self._reason:
                self._reason = reason
                for waiting in tuple(self._queue):
                    waiting.waits()
            if self._table is not None:
                self._table.wait(first.holder, request, first.since)
                self._look_in(again)
            break
        else:
            self._reason = ""
            if self._table is not None:
                self._table.wait_no_more()
        if self._table is not None and not self._table.flush():
            self._look_in(LOOK_SECONDS)

    def _lease(self, request: Request, cards: tuple[str, ...], holder: str) -> Lease:
        """Take something that is free."""
        self._cpu -= request.cpu
        self._memory -= request.memory
        for card in cards:
            if card in self._gpus:
                self._gpus.remove(card)
                if request.share > 1:
                    alone = Lease(Request(gpus=1, share=request.share), (card,), holder)
                    self._shared[card] = _SharedCard(request.share, 0, alone)
            if request.share > 1:
                self._shared[card].count += 1
        return Lease(request, cards, holder)

    def _shares_left(self, request: Request) -> list[str]:
        """Return the cards that are shared by the same number, and not by as many yet."""
        return [card for card, s in self._shared.items() if s.count < s.share == request.share]

    def _leave(self, card: str) -> None:
        """Give back a share of a card, and the card with the last one."""
        shared = self._shared[card]
        shared.count -= 1
        if not shared.count:
            del self._shared[card]
            self._gpus.append(card)
            if self._table is not None:
                self._table.give_back(shared.lease)

    def _look_in(self, seconds: float) -> None:
        """Look again for resources that other engines gave back; there is one timer for this, the next one."""
        moment = self._clock.monotonic() + seconds
        if self._later is not None and (self._looks_at is None or moment < self._looks_at):
            self._looks_at = moment
            self._later(seconds, partial(self._look, moment))

    def _look(self, moment: float) -> None:
        if self._looks_at == moment:
            self._looks_at = None
            self._serve()


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
