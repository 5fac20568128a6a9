"""Resource requests as tokens: who may run at once on this machine.

Laws:

1. The sum of what is leased never exceeds the capacity, nor with what other engines hold what the machine has.
2. First come, first served among the pods that request anything: a large one is not overtaken forever by small ones.
3. A pod that requests nothing never waits here; how many of them run is for parallelTrialCount to say.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from katib.api.quantities import parse_quantity
from katib.runtime.clock import Clock, SystemClock
from katib.runtime.objects import Object

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")

VISIBLE_CARDS = "CUDA_VISIBLE_DEVICES"
"""Which cards a program may use; HIP, for cards of AMD, reads it, too."""

LOOK_SECONDS = 0.5
"""How often a pod that waits looks whether another engine gave something back."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What the engines in some place, such as a control group, may use together of `cpu` or `memory`."""

    place: str
    resource: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Capacity:
    """What this machine lends to pods: cores, bytes, and the identifiers of its GPUs.

    Attributes:
        cores: Which cores these are; empty where that is not known.
        limits: What other engines may be limited by, too.
        is_scheduled: Whether a scheduler decides what is free, and pods lease nothing of this.
    """

    cpu: Decimal
    memory: Decimal
    gpus: tuple[str, ...] = ()
    cores: frozenset[int] = frozenset()
    limits: tuple[Limit, ...] = ()
    is_scheduled: bool = False

    @classmethod
    def of_machine(cls) -> Capacity:
        """Return what the machine has and this process may use."""
        cores = frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))
        memory = Decimal(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        return cls(Decimal(len(cores)), memory, _visible_gpus(), cores, (Limit("machine", "memory", memory),))


@dataclass(frozen=True, slots=True)
class Request:
    """What a pod asks for."""

    cpu: Decimal = Decimal(0)
    memory: Decimal = Decimal(0)
    gpus: int = 0

    def __add__(self, other: Request) -> Request:
        return Request(self.cpu + other.cpu, self.memory + other.memory, self.gpus + other.gpus)

    def __sub__(self, other: Request) -> Request:
        return Request(self.cpu - other.cpu, self.memory - other.memory, self.gpus - other.gpus)

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
        return ", ".join([*texts, f"{self.gpus} GPU"] if self.gpus else texts)


@dataclass(frozen=True, slots=True)
class Lease:
    """What a pod was granted, with the GPUs that are its own, and for whom."""

    request: Request
    gpus: tuple[str, ...] = ()
    holder: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something cannot be leased now, empty where that is not known yet, and when to look again."""

    reason: str
    again_seconds: float


class Table(Protocol):
    """What all engines of this machine hold, as `leases.LeaseTable` knows it."""

    def take(self, holder: str, request: Request, free: Sequence[str], since: float) -> tuple[str, ...] | Refusal:
        """Lease something, of these cards; or return why not."""

    def keep(self, holder: str, request: Request, cards: Sequence[str]) -> None:
        """Lease what a pod has that went on without an engine."""

    def give_back(self, lease: Lease) -> None:
        """Return what was leased."""

    def wait(self, holder: str, request: Request, since: float) -> None:
        """Say what the first waiting pod asks for, every time that it looks again."""

    def wait_no_more(self) -> None:
        """Say that no pod waits."""

    def flush(self) -> bool:
        """Show the others what changed; return False when that has to be tried again."""

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


def _nothing() -> None:
    pass


class Tokens:
    """Grants leases. Used by one thread; only `waiting_reason` may be called from others.

    Args:
        capacity: What there is.
        table: What other engines hold; None: there are none.
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
        waits: Callable[[], None] = _nothing,
    ) -> None:
        """Have `granted` called with a lease as soon as it is this pod's turn, at once if possible.

        Args:
            name: Of the pod.
            request: What it asks for.
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
        """Return the lease of a pod that went on without an engine: it has what it had."""
        cards = tuple(card for card in gpus if card in self._gpus)
        self._cpu -= request.cpu
        self._memory -= request.memory
        for card in cards:
            self._gpus.remove(card)
        if self._table is not None and not request.is_empty:
            self._table.keep(holder, request, cards)
        return Lease(request, cards, holder)

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
        self._gpus.extend(lease.gpus)
        if self._table is not None:
            self._table.give_back(lease)
        self._serve()

    def free_gpus(self) -> tuple[str, ...]:
        """Return the cards that are not leased, here or elsewhere."""
        elsewhere = frozenset[str]() if self._table is None or not self._gpus else self._table.held_elsewhere()
        return tuple(card for card in self.capacity.gpus if card in self._gpus and card not in elsewhere)

    def waiting_reason(self, name: str) -> str:
        """Return what a pod waits for; empty when it does not wait."""
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
                f"{len(self._gpus)} of {len(total.gpus)} GPU" if request.gpus else "",
            )
            return f"waits for {request}; {' and '.join(filter(None, free))} are free{before}"
        return ""

    def _serve(self) -> None:
        while self._queue:
            first, reason, again = self._queue[0], "", LOOK_SECONDS
            request, free = first.request, tuple(self._gpus)
            if request.cpu <= self._cpu and request.memory <= self._memory and request.gpus <= len(free):
                taken: tuple[str, ...] | Refusal = free[: request.gpus]
                if self._table is not None:
                    taken = self._table.take(first.holder, request, free, first.since)
                if not isinstance(taken, Refusal):
                    self._grant(first, taken)
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

    def _grant(self, first: _Waiting, gpus: tuple[str, ...]) -> None:
        self._queue.popleft()
        self._reason = ""
        self._cpu -= first.request.cpu
        self._memory -= first.request.memory
        for card in gpus:
            self._gpus.remove(card)
        first.granted(Lease(first.request, gpus, first.holder))

    def _look_in(self, seconds: float) -> None:
        """Look again what other engines gave back; there is one plan to do so at a time, the next one."""
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
    cards: Iterable[Path] = Path("/proc/driver/nvidia/gpus").glob("*")
    return tuple(str(number) for number, _ in enumerate(cards))
