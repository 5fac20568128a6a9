"""Follows services from their creation until they answer, and gives up on those that cannot.

Theory of operation: one thread looks at every service that is not ready, whenever something about it changed or is due.

    Deployment missing ----> available? ----> asked for its health ----> ready
                                ^  |                                       |
                                |  +--- no: its pods say why               |
                                +------------------------------------------+  not available any more

Trouble is what keeps a service from the next state: words of its pods, of the API server, or of gRPC. A service that is
merely slow has none, as long as its Deployment's own deadline allows. Trouble of the service that lasts longer than the
patience is a failure, and final. Trouble of the cluster that may pass, such as no room on any node, is told and waited
out: an experiment of days is worth more than an hour without a node.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from katib.errors import ForbiddenError, KatibError, UnavailableError
from katib.rpc.connection import Connection
from katib.runtime.clock import Clock
from katib.runtime.objects import Key
from katib.services.cluster.objects import ServiceObjects
from katib.services.cluster.plan import ClusterPlan
from katib.services.cluster.trouble import Trouble, is_available, trouble_of
from katib.services.readiness import ask_health
from katib.services.states import User

_log = logging.getLogger(__name__)

Tell = Callable[[User], None]


@dataclass(frozen=True, slots=True)
class ClusterTiming:
    """How long things may take, in seconds.

    Attributes:
        call: Deadline of each call: Katib's value.
        patience: For how long something of its own may be wrong with a service before its experiment fails for it.
        first_look: Until the pods of a Deployment that is not available are looked at.
        look: Between two such looks.
        first_probe: Until a service that does not answer is asked again; doubles.
        longest_probe: Bound of that.
        retry: Until an object that could not be created is tried again.
        settle: How long after its creation an object may be missing in the cache.
        grace: For how long trouble is told without calling the service failing: a container starts before it listens.
    """

    call: float = 60.0
    patience: float = 120.0
    first_look: float = 2.0
    look: float = 10.0
    first_probe: float = 0.05
    longest_probe: float = 1.0
    retry: float = 2.0
    settle: float = 10.0
    grace: float = 5.0


@dataclass(slots=True)
class Served:
    """How one suggestion is served now. Guarded by the lock of `ServiceWatch`.

    `crash` is the last trouble of its own that its pods told of, since it was ready: while a program starts again and
    again, that says more than the connections it refuses.
    """

    user: User
    owner_uid: str
    plan: ClusterPlan
    reads_history: bool = True
    created_at: float | None = None
    blocked: Trouble = field(default_factory=Trouble)
    retry_at: float = 0.0
    trouble: Trouble = field(default_factory=Trouble)
    trouble_since: float | None = None
    crash: Trouble = field(default_factory=Trouble)
    next_look: float | None = None
    next_probe: float = 0.0
    probe_pause: float = 0.0
    asking: set[int] = field(default_factory=set)
    healthy: set[int] = field(default_factory=set)
    connections: dict[int, Connection] = field(default_factory=dict)
    ready: bool = False
    failure: str = ""
    released: bool = False

    @property
    def key(self) -> Key:
        """Key of its Deployment and its Service."""
        return Key(self.user[0], self.plan.name)


class ServiceWatch:
    """Looks after what is served. Thread-safe; nothing but `stop` waits.

    Args:
        objects: Finds Deployments, Services and pods.
        clock: Where patience is measured.
        timing: How long things may take.
        tell: Called, without lock, with whoever has to look again.
    """

    def __init__(self, objects: ServiceObjects, clock: Clock, timing: ClusterTiming, tell: Tell) -> None:
        self._objects = objects
        self._clock = clock
        self._timing = timing
        self._tell = tell
        self.lock = threading.Condition()
        self.served: dict[User, Served] = {}
        self._changed = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="service-watch", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End, and close every connection."""
        with self.lock:
            self._stopping = True
            self.lock.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        with self.lock:
            for served in self.served.values():
                close_connections(served)
            self.served.clear()

    def wake(self) -> None:
        """Have the thread look again: something changed."""
        with self.lock:
            self._changed = True
            self.lock.notify_all()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self.lock:
                if self._stopping:
                    return
                self._changed = False
                pending = list(self.served.values())
            due = [moment for served in pending if (moment := self._step_guarded(served)) is not None]
            with self.lock:
                while not self._changed and not self._stopping:
                    left = min(due) - self._clock.monotonic() if due else None
                    if left is not None and left <= 0:
                        break
                    self._clock.wait(self.lock, left)

    def _step_guarded(self, served: Served) -> float | None:
        try:
            return self._step(served)
        except Exception:  # noqa: BLE001 - one service must not take the watch over all others down
            _log.exception("Service cannot be watched", extra={"service": str(served.key)})
            return self._clock.monotonic() + self._timing.look

    def _step(self, served: Served) -> float | None:
        """Move one service on; return when to look at it again without being told, None for never."""
        if served.failure or served.released:
            return None
        if not served.plan.has_objects:
            self._ready(served)
            return None
        deployment = self._objects.deployment(served.key, served.owner_uid)
        if deployment is None:
            self._unready(served)
            return self._missing(served)
        if not is_available(deployment):
            self._unready(served)
            return self._unavailable(served)
        return None if served.ready else self._probe(served)

    def _missing(self, served: Served) -> float | None:
        """Nothing is there yet: have it created, or wait until the cache shows it."""
        now = self._clock.monotonic()
        if self._hold_against(served, served.blocked):
            return None
        with self.lock:
            if served.created_at is not None and now - served.created_at < self._timing.settle:
                return served.created_at + self._timing.settle
            retry_at = served.retry_at
            served.retry_at = max(retry_at, now) + self._timing.retry if now >= retry_at else retry_at
        if now >= retry_at:
            self._tell(served.user)
            return now + self._timing.retry
        return retry_at

    def _unavailable(self, served: Served) -> float | None:
        now = self._clock.monotonic()
        with self.lock:
            served.blocked = Trouble()
            if served.next_look is None:
                served.next_look = now + self._timing.first_look
            if now < served.next_look:
                return served.next_look
            served.next_look = now + self._timing.look
        try:
            deployment = self._objects.deployment(served.key, served.owner_uid)
            pods = self._objects.pods(*served.key)
            trouble = Trouble() if deployment is None else trouble_of(deployment, pods)
        except ForbiddenError as error:
            trouble = Trouble(f"its Deployment is not available, and why cannot be seen: {error}")
        except UnavailableError:
            return served.next_look  # while the API server is away nothing can be held against the service
        if trouble and not trouble.may_pass:
            with self.lock:
                served.crash = trouble
        return None if self._hold_against(served, trouble) else served.next_look

    def _probe(self, served: Served) -> float | None:
        """Ask the services that have not answered yet, or say that all have."""
        ports = [i for i, endpoint in enumerate(served.plan.endpoints) if not endpoint.address]
        if served.healthy >= set(ports):
            self._ready(served)
            return None
        now = self._clock.monotonic()
        with self.lock:
            if now < served.next_probe:
                return served.next_probe
            to_ask = [i for i in ports if i not in served.healthy | served.asking]
            served.asking.update(to_ask)
        for i in to_ask:
            self._ask(served, i)
        return None  # the answer wakes us

    def _ask(self, served: Served, i: int) -> None:
        endpoint = served.plan.endpoints[i]
        address = self._objects.address(served.key, served.owner_uid, endpoint.port)
        if not address:
            future: Future[bool] = Future()
            future.set_exception(UnavailableError("its Service has no address yet"))
        else:
            connection = self._connect(served, i, address)
            future = ask_health(connection, endpoint.health_service)
        future.add_done_callback(partial(self._answered, served, i, address))

    def _connect(self, served: Served, i: int, address: str) -> Connection:
        with self.lock:
            known = served.connections.get(i)
            if known is not None and known.address == address:
                return known
            peer = str(served.plan.endpoints[i].id)
            connection = Connection(address, peer=peer, timeout_seconds=self._timing.call)
            served.connections[i] = connection
            if served.released:
                connection.close()
        if known is not None:
            known.close()
        return connection

    def _answered(self, served: Served, i: int, address: str, future: Future[bool]) -> None:
        trouble = _refusal(future)
        stale = None
        with self.lock:
            served.asking.discard(i)
            if trouble:
                served.probe_pause = min(
                    max(self._timing.first_probe, served.probe_pause * 2), self._timing.longest_probe
                )
                served.next_probe = self._clock.monotonic() + served.probe_pause
                stale = served.connections.pop(i, None)  # a new one does not wait out the back-off of this one
            else:
                served.healthy.add(i)
                served.probe_pause = 0.0
        if stale is not None:
            stale.close()
        if trouble:
            where = f"{served.plan.endpoints[i].id} does not answer at {address or served.key}"
            self._hold_against(served, served.crash or Trouble(f"{where}: {trouble}"))
        self.wake()

    # --- states -------------------------------------------------------------------------------------------------------

    def _ready(self, served: Served) -> None:
        with self.lock:
            if served.ready or served.released:
                return
            for i, endpoint in enumerate(served.plan.endpoints):
                if i not in served.connections:
                    served.connections[i] = Connection(
                        endpoint.address, peer=str(endpoint.id), timeout_seconds=self._timing.call
                    )
            served.ready = True
            served.blocked = Trouble()
            served.next_look = None
            served.trouble, served.trouble_since, served.crash = Trouble(), None, Trouble()
        self._tell(served.user)

    def _unready(self, served: Served) -> None:
        with self.lock:
            served.healthy.clear()
            was_ready, served.ready = served.ready, False
        if was_ready:
            self._tell(served.user)

    def _hold_against(self, served: Served, trouble: Trouble) -> bool:
        """Take note of what keeps a service, none for nothing; tell whether it failed for it."""
        with self.lock:
            waited_for, served.trouble = served.trouble, trouble
            failed = self._is_over(served)
            if failed:
                service = served.plan.endpoints[0].id
                served.failure = f"{service} did not become ready within {self._timing.patience:g} s: {trouble.words}"
        if failed or (trouble.may_pass and trouble != waited_for):
            self._tell(served.user)
        return failed

    def _is_over(self, served: Served) -> bool:
        """Tell whether a service is in a trouble of its own for longer than the patience; with the lock."""
        if not served.trouble or served.trouble.may_pass:
            served.trouble_since = None
            return False
        now = self._clock.monotonic()
        if served.trouble_since is None:
            served.trouble_since = now
        return now - served.trouble_since >= self._timing.patience


def close_connections(served: Served) -> None:
    """Close what a service was talked to over; with the lock."""
    for connection in served.connections.values():
        connection.close()
    served.connections.clear()


def _refusal(future: Future[bool]) -> str:
    """Return why a health check does not count, empty when the service serves."""
    error = future.exception()
    if error is None:
        return "" if future.result() else "it says that it does not serve yet"
    return str(error) if isinstance(error, KatibError) else f"{type(error).__name__}: {error}"
