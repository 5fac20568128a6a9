"""Resource requests as tokens: the pods that may run at once on this machine.

Laws:

1. The sum of leases never exceeds the capacity, nor, with those of other engines, the resources of the machine.
   A card has one pod, or some that share it by the same number; other engines find it taken then.
2. First come, first served among the pods that request anything: a large one is not overtaken forever by small ones.
3. A pod that requests nothing never waits here; how many of them run is for parallelTrialCount to say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from katib.engine.runtime.clock import Clock, SystemClock
from katib.places.machine.pods.requests import Capacity, Lease, LeaseRefusal, Request

LOOK_SECONDS = 0.5
"""How often a pod that waits looks whether another engine gave something back."""


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
        table: The leases of other engines; None: there are no others.
        later: Calls a function on this thread after some seconds; needed with a table.
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
