"""The services of one machine: one process per algorithm in use, shared by all experiments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from katib.engine.algorithm_services.plan import ServiceId, ServicePlan, own_plan
from katib.engine.algorithm_services.readiness import Listener, ServiceState, ServiceTiming, User
from katib.engine.runtime.clock import Clock, SystemClock
from katib.errors import TerminalError
from katib.places.machine.services.files import ServiceLog, SocketDirectory
from katib.places.machine.services.supervisor import Supervisor

if TYPE_CHECKING:
    from katib.model.algorithms import AlgorithmCatalog
    from katib.model.types import Experiment
    from katib.places.machine.processes.client import Processes
    from katib.wire.rpc.clients import ServiceClient
    from katib.wire.rpc.connection import LazyChannel


class ServiceHost:
    """Services as local processes. Implements `katib.engine.controllers.ports.ServiceDirectory`.

    Thread-safe; only `close` waits for a process.

    Args:
        plans: Services that a user plugged in; they take precedence over built-in ones of the same name.
        catalog: The algorithms. Needed by `service_for`, not by `prewarm`: may be set later.
        db_manager_address: Returns the address from which an early stopping service reads metrics.
    """

    def __init__(
        self,
        processes: Processes,
        log_directory: Path,
        *,
        plans: Mapping[ServiceId, ServicePlan] | None = None,
        catalog: AlgorithmCatalog | None = None,
        db_manager_address: Callable[[ServicePlan], str] = lambda _plan: "",
        timing: ServiceTiming | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.catalog = catalog
        self.db_manager_address = db_manager_address
        self._processes = processes
        self._log_directory = log_directory
        self._plans = dict(plans or {})
        self._timing = timing or ServiceTiming()
        self._clock = clock or SystemClock()
        self._sockets = SocketDirectory()
        self._lock = threading.RLock()
        self._supervisors: dict[ServiceId, Supervisor] = {}
        self._addressed: dict[ServiceId, LazyChannel] = {}
        self._clients: dict[User, tuple[tuple[LazyChannel, ...], ServiceClient]] = {}
        self._listeners: list[Listener] = []
        self._closed = False

    def on_change(self, listener: Listener) -> None:
        """Register a callback for each experiment whose service became ready or has failed."""
        self._listeners.append(listener)

    def prewarm(self, algorithm: str, *, early_stopping: bool = False) -> None:
        """Start a service before it is needed, if there is one; it stops again if it is not used."""
        if self.catalog is not None and self.catalog.find(algorithm, early_stopping=early_stopping) is None:
            return
        service = ServiceId(algorithm, early_stopping)
        if not self._plan(service).address:
            self._supervisor(service, None)

    def service_for(self, experiment: Experiment) -> ServiceClient | None:
        """Return a client if the services are ready, None while they start; the same client as long as they live.

        Raises:
            TerminalError: There is no such algorithm, or its process crashes repeatedly.
        """
        user, spec = (experiment.namespace, experiment.name), experiment.spec
        wanted = [ServiceId("" if spec.algorithm is None else spec.algorithm.algorithm_name)]
        if spec.early_stopping is not None:
            wanted.append(ServiceId(spec.early_stopping.algorithm_name, early_stopping=True))
        connections: tuple[LazyChannel, ...] = ()
        for service in wanted:  # all of them, so that both start at once
            plan = self._plans.get(service)
            if plan is not None and plan.address:
                connections += (self._addressed_connection(plan),)
            elif (connection := self._supervisor(service, user).connection()) is not None:
                connections += (connection,)
        if len(connections) < len(wanted):
            return None
        with self._lock:
            known = self._clients.get(user)
            if known is not None and known[0] == connections:
                return known[1]
            info = self.catalog.find(wanted[0].algorithm) if self.catalog is not None else None
            client = self._client(connections, wanted[-1], reads_history=info is None or info.reads_history)
            self._clients[user] = (connections, client)
            return client

    def _client(self, connections: tuple[LazyChannel, ...], last: ServiceId, *, reads_history: bool) -> ServiceClient:
        if last.early_stopping:
            from katib.wire.rpc.judging import JudgedServiceClient

            return JudgedServiceClient(
                *connections,
                reads_history=reads_history,
                db_manager_address=lambda: self.db_manager_address(self._plan(last)),
            )
        from katib.wire.rpc.clients import ServiceClient

        return ServiceClient(*connections, reads_history=reads_history)

    def waiting_for(self, experiment: Experiment) -> str:
        """Return the passing obstacle to the services becoming ready, such as a lack of memory."""
        user = (experiment.namespace, experiment.name)
        with self._lock:
            supervisors = list(self._supervisors.values())
        return "; ".join(filter(None, (supervisor.waiting_for(user) for supervisor in supervisors)))

    def release(self, experiment: Experiment) -> None:
        """Release the services, so that idle ones may stop; idempotent."""
        user = (experiment.namespace, experiment.name)
        with self._lock:
            self._clients.pop(user, None)
            supervisors = list(self._supervisors.values())
        for supervisor in supervisors:
            supervisor.release(user)

    def states_of(self, namespace: str, experiment: str) -> tuple[ServiceState, ...]:
        """Return the states of the services that an experiment waits for or uses."""
        user = (namespace, experiment)
        with self._lock:
            supervisors = list(self._supervisors.values())
            used, _ = self._clients.get(user, ((), None))
            addressed = [(service, c) for service, c in self._addressed.items() if c in used]
        states = [ServiceState(service, "ready", address=c.address) for service, c in addressed]
        states.extend(state for supervisor in supervisors if (state := supervisor.state_for(user)) is not None)
        return tuple(states)

    def close(self) -> None:
        """Stop every service and wait until its process is gone. Pending calls fail with UnavailableError."""
        with self._lock:
            self._closed = True
            supervisors = list(self._supervisors.values())
            addressed = list(self._addressed.values())
        for supervisor in supervisors:
            supervisor.stop()
        for supervisor in supervisors:
            supervisor.join()
        for connection in addressed:
            connection.close()
        self._sockets.remove()

    def _addressed_connection(self, plan: ServicePlan) -> LazyChannel:
        """Return the connection to an external service: always "ready", its calls fail if it is not."""
        from katib.wire.rpc.connection import LazyChannel

        with self._lock:
            if plan.id not in self._addressed:
                self._addressed[plan.id] = LazyChannel(
                    plan.address, peer=str(plan.id), timeout_seconds=self._timing.of(plan).call
                )
            return self._addressed[plan.id]

    def _supervisor(self, service: ServiceId, user: User | None) -> Supervisor:
        with self._lock:
            if self._closed:
                raise TerminalError(f"{service} cannot be started: this host was closed")
            supervisor = self._supervisors.get(service)
            if supervisor is None or not supervisor.use(user):
                supervisor = self._start(service, user)
            return supervisor

    def _start(self, service: ServiceId, user: User | None) -> Supervisor:
        log = ServiceLog(self._log_directory, service)
        plan = self._plan(service)
        supervisor = Supervisor(
            plan, self._processes, log, self._sockets, self._timing.of(plan), self._clock, self._tell
        )
        supervisor.use(user)
        supervisor.start()
        self._supervisors[service] = supervisor
        return supervisor

    def _plan(self, service: ServiceId) -> ServicePlan:
        plan = self._plans.get(service)
        if plan is not None:
            return plan
        if (
            self.catalog is not None
            and self.catalog.find(service.algorithm, early_stopping=service.early_stopping) is None
        ):
            raise TerminalError(f"{service} is not offered here; `katib algorithms` lists those that are")
        return own_plan(service)

    def _tell(self, users: frozenset[User]) -> None:
        for namespace, name in users:
            for listener in self._listeners:
                listener(namespace, name)
