"""Thread around `served` that advances every service that is not ready, on a change or when due."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from katib.engine.algorithm_services.readiness import User, ask_health
from katib.engine.runtime.clock import Clock
from katib.errors import ForbiddenError, KatibError, UnavailableError
from katib.places.cluster.services.objects import ServiceObjects
from katib.places.cluster.services.served import (
    ClusterTiming,
    ServiceAction,
    ServiceProgress,
    after_answer,
    after_look,
    is_notable,
    next_step,
)
from katib.places.cluster.services.trouble import NO_TROUBLE, ReadinessProblem, trouble_of
from katib.wire.rpc.connection import LazyChannel

_log = logging.getLogger(__name__)


class ServiceWatch:
    """Holds the state of the services. Thread-safe; only `stop` blocks.

    Args:
        objects: Finds Deployments, Services and pods.
        notify: Called, without lock, with the experiments to reconcile again.
    """

    def __init__(
        self, objects: ServiceObjects, clock: Clock, timing: ClusterTiming, notify: Callable[[User], None]
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._timing = timing
        self._notify = notify
        self._changed = threading.Condition()
        self._served: dict[User, ServiceProgress] = {}
        self._connections: dict[User, dict[int, LazyChannel]] = {}
        self._woken = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="service-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and close every connection."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        for user in list(self._served):
            self.forget(user)

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def find(self, user: User) -> ServiceProgress | None:
        """Return the state of an experiment's services; None if it has none."""
        with self._changed:
            return self._served.get(user)

    def add(self, served: ServiceProgress) -> ServiceProgress:
        """Begin to serve an experiment; return its state, which another thread may have added first."""
        with self._changed:
            served = self._served.setdefault(served.user, served)
        self.wake()
        return served

    def forget(self, user: User) -> None:
        """Stop serving an experiment, and close its connections."""
        with self._changed:
            self._served.pop(user, None)
            connections = self._connections.pop(user, {})
        for connection in connections.values():
            connection.close()

    def change(self, of: ServiceProgress, changed: Callable[[ServiceProgress], ServiceProgress]) -> None:
        """Replace the state of a service, unless it was forgotten meanwhile."""
        self._advance(of, lambda current: ServiceAction(changed(current)))

    def connections(self, served: ServiceProgress) -> tuple[LazyChannel, ...]:
        with self._changed:
            current = self._current(served)
            if current is None or not current.ready:
                return ()
            return tuple(
                self._connection(served, i, endpoint.address) for i, endpoint in enumerate(served.plan.endpoints)
            )

    def _current(self, of: ServiceProgress) -> ServiceProgress | None:
        """Return the present state of a service, None if it was forgotten; with the lock."""
        current = self._served.get(of.user)
        return current if current is not None and current.plan is of.plan else None  # each service has its own plan

    def _advance(
        self, of: ServiceProgress, step_from: Callable[[ServiceProgress], ServiceAction]
    ) -> ServiceAction | None:
        """Apply the state of a step, and notify of it; return the step, None for a forgotten service."""
        with self._changed:
            old = self._current(of)
            if old is None:
                return None
            step = step_from(old)
            self._served[of.user] = step.served
        if is_notable(old, step.served):
            self._notify(of.user)
        return step

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopping:
                    return
                self._woken = False
                pending = list(self._served.values())
            due = [moment for served in pending if (moment := self._move_on(served)) is not None]
            with self._changed:
                while not self._woken and not self._stopping:
                    left = min(due) - self._clock.monotonic() if due else None
                    if left is not None and left <= 0:
                        break
                    self._clock.wait(self._changed, left)

    def _move_on(self, served: ServiceProgress) -> float | None:
        """Advance one service; return when to do so again without being woken, None for never."""
        try:
            return self._step(served)
        except Exception:  # noqa: BLE001 - one service must not stop the watch over all others
            _log.exception("Service cannot be watched", extra={"service": str(served.key)})
            return self._clock.monotonic() + self._timing.look

    def _step(self, served: ServiceProgress) -> float | None:
        deployment = self._objects.deployment(served.key, served.owner_uid)
        now = self._clock.monotonic()
        step = self._advance(served, lambda current: next_step(current, deployment, self._timing, now))
        if step is None:
            return None
        if step.creates:
            self._notify(served.user)
        for i in step.asks:
            self._ask(served, i)
        if step.looks_at_pods:
            self._look(served)
        return step.due

    def _look(self, served: ServiceProgress) -> None:
        try:
            deployment = self._objects.deployment(served.key, served.owner_uid)
            pods = self._objects.pods(*served.key)
            trouble = NO_TROUBLE if deployment is None else trouble_of(deployment, pods)
        except ForbiddenError as error:
            trouble = ReadinessProblem(f"its Deployment is not available, and why cannot be seen: {error}")
        except UnavailableError:
            return  # an outage of the API server is not the service's fault
        now = self._clock.monotonic()
        self.change(served, lambda current: after_look(current, trouble, self._timing, now))

    def _ask(self, served: ServiceProgress, i: int) -> None:
        endpoint = served.plan.endpoints[i]
        address = self._objects.address(served.key, served.owner_uid, endpoint.port)
        with self._changed:
            if self._current(served) is None:
                return
            connection = self._connection(served, i, address) if address else None
        if connection is not None:
            future = ask_health(connection, endpoint.health_service)
        else:
            future = Future()
            future.set_exception(UnavailableError("its Service has no address yet"))
        future.add_done_callback(partial(self._answered, served, i, connection))

    def _answered(self, served: ServiceProgress, i: int, connection: LazyChannel | None, future: Future[bool]) -> None:
        refusal = _refusal(future)
        if refusal:
            place = served.key if connection is None else connection.address
            refusal = f"{served.plan.endpoints[i].id} does not answer at {place}: {refusal}"
            if connection is not None:
                self._disconnect(served.user, i, connection)
        now = self._clock.monotonic()
        self.change(served, lambda current: after_answer(current, i, refusal, self._timing, now))
        self.wake()

    # --- connections --------------------------------------------------------------------------------------------------

    def _connection(self, served: ServiceProgress, i: int, address: str) -> LazyChannel:
        """Return the connection to an endpoint, the existing one unless the address differs; with the lock."""
        connections = self._connections.setdefault(served.user, {})
        known = connections.get(i)
        if known is not None and address in ("", known.address):
            return known
        if known is not None:
            known.close()
        endpoint = served.plan.endpoints[i]
        made = LazyChannel(address, peer=str(endpoint.id), timeout_seconds=endpoint.call_seconds)
        connections[i] = made
        return made

    def _disconnect(self, user: User, i: int, connection: LazyChannel) -> None:
        """Close a refused connection: a new one does not wait out its back-off."""
        with self._changed:
            connections = self._connections.get(user, {})
            if connections.get(i) is connection:
                del connections[i]
        connection.close()


def _refusal(future: Future[bool]) -> str:
    """Return why a health check failed, empty if the service serves."""
    error = future.exception()
    if error is None:
        return "" if future.result() else "it says that it does not serve yet"
    return str(error) if isinstance(error, KatibError) else f"{type(error).__name__}: {error}"
