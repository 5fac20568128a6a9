"""Directory of a cluster's services: a Deployment and a Service for each suggestion that needs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from katib.engine.algorithm_services.readiness import Listener, ServiceState, User
from katib.engine.controllers.job_caches import identity
from katib.engine.controllers.kinds import is_owned_by
from katib.engine.runtime.clock import Clock, SystemClock
from katib.engine.runtime.informer import Informer, InformerEvent
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import TerminalError, UnavailableError
from katib.model.conditions import is_true
from katib.model.types import Experiment, ResumePolicy, Suggestion, SuggestionCondition
from katib.places.cluster.configuration.models import KatibConfig
from katib.places.cluster.services.objects import BlockedError, LogEndpoint, ServiceObjects
from katib.places.cluster.services.plan import (
    DEPLOYMENT,
    SERVICE,
    SUGGESTION_LABEL,
    ClusterCatalog,
    object_name,
    plan_for,
)
from katib.places.cluster.services.served import ClusterTiming, ServiceProgress, after_block, after_creation
from katib.places.cluster.services.trouble import NO_TROUBLE
from katib.places.cluster.services.watch import ServiceWatch
from katib.wire.rpc.clients import ServiceClient
from katib.wire.rpc.connection import LazyChannel
from katib.wire.rpc.judging import JudgedServiceClient

_SYNC_SECONDS = 10.0


class ClusterServices:
    """Directory of services. Implements `katib.engine.controllers.ports.ServiceDirectory`.

    Thread-safe; never waits for a service.

    Args:
        store: Store of the objects. It may leave out Deployments and Services without `SERVICE_SELECTORS`.
        suggestion_of: Returns the Suggestion of a key from a cache; it owns the created objects.
        db_manager: The log that early stopping services read.
        grpc_probes: Whether containers get gRPC probes, subject to the KatibConfig.
        all_pods: Store with the pods of services, if `store` leaves pods out.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        suggestion_of: Callable[[Key], Suggestion | None],
        config: Callable[[], KatibConfig],
        db_manager: LogEndpoint,
        grpc_probes: bool,
        all_pods: ObjectStore | None = None,
        timing: ClusterTiming | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._suggestion_of = suggestion_of
        self._config = config
        self._catalog = ClusterCatalog(config)
        self._db_manager = db_manager
        self._timing = timing or ClusterTiming()
        self._clock = clock or SystemClock()
        deployments = Informer(store, DEPLOYMENT, identity, clock=self._clock)
        services = Informer(store, SERVICE, identity, clock=self._clock)
        self._informers = (deployments, services)
        self._objects = ServiceObjects(
            store,
            deployments,
            services,
            all_pods=all_pods or store,
            grpc_probes=grpc_probes,
            reader_variables=db_manager.reader_variables,
        )
        self._watch = ServiceWatch(self._objects, self._clock, self._timing, self._notify)
        self._clients: dict[User, tuple[tuple[LazyChannel, ...], ServiceClient]] = {}
        self._listeners: list[Listener] = []
        for informer in self._informers:
            informer.add_handler(self._object_changed)

    def start(self) -> None:
        """Begin to follow Deployments and Services; return when the caches are filled, or after a timeout."""
        for informer in self._informers:
            informer.start()
        for informer in self._informers:
            informer.wait_for_sync(_SYNC_SECONDS)
        self._watch.start()

    def close(self) -> None:
        """Stop following and close the connections; services in the cluster keep running. Idempotent."""
        self._watch.stop()
        for informer in self._informers:
            informer.stop()

    def on_change(self, listener: Listener) -> None:
        """Register a listener for experiments whose service became ready, ceased to be ready, or failed."""
        self._listeners.append(listener)

    def service_for(self, experiment: Experiment) -> ServiceClient | None:
        """Return a client if the services are ready, None while they start; the same client as long as they live.

        Raises:
            TerminalError: They cannot be started, with the cause.
            UnavailableError: The cluster cannot be reached, or the KatibConfig no longer offers the algorithm.
        """
        suggestion = self._suggestion_of(Key(experiment.namespace, experiment.name))
        if suggestion is None or not is_owned_by(suggestion, experiment):
            return None
        served = self._served(suggestion)
        if served.failure:
            raise TerminalError(served.failure)
        if served.plan.has_objects and not self._objects.are_there(served.key, served.owner_uid):
            self._create(served, suggestion)
        connections = self._watch.connections(served)
        if connections:
            return self._client(served, connections)
        self._watch.wake()
        return None

    def waiting_for(self, experiment: Experiment) -> str:
        """Return the cluster's obstacle to the services becoming ready; empty if there is none."""
        served = self._watch.find((experiment.namespace, experiment.name))
        return served.trouble.words if served is not None and served.trouble.may_pass else ""

    def release(self, experiment: Experiment) -> None:
        """Remove the objects that serve an experiment, except volumes. Cheap if there are none; idempotent.

        With the policy LongRunning only a failed suggestion is released. The cluster removes the dependents of a
        deleted Suggestion.

        Raises:
            UnavailableError: The cluster cannot be reached; release again.
        """
        user = (experiment.namespace, experiment.name)
        suggestion = self._suggestion_of(Key(*user))
        if suggestion is not None and is_owned_by(suggestion, experiment):
            is_long_running = experiment.spec.resume_policy == ResumePolicy.LONG_RUNNING
            if is_long_running and not is_true(suggestion.status.conditions, SuggestionCondition.FAILED):
                return
            self._remove(user, suggestion)
        self._forget(user)

    def states_of(self, namespace: str, experiment: str) -> tuple[ServiceState, ...]:
        """Return the states of the services that an experiment waits for or uses."""
        served = self._watch.find((namespace, experiment))
        if served is None:
            return ()
        failing = served.is_failing(self._timing, self._clock.monotonic())
        state = "ready" if served.ready else "failing" if failing else "starting"
        return tuple(
            ServiceState(
                endpoint.id,
                state,
                last_error=served.failure or served.trouble.words,
                address=endpoint.address or f"{served.plan.name}.{namespace}:{endpoint.port}",
            )
            for endpoint in served.plan.endpoints
        )

    def _served(self, suggestion: Suggestion) -> ServiceProgress:
        user = (suggestion.namespace, suggestion.name)
        uid = suggestion.metadata.uid
        served = self._watch.find(user)
        if served is not None and served.owner_uid == uid:
            return served
        self._forget(user)
        plan = plan_for(suggestion, self._config())
        info = self._catalog.find(plan.endpoints[0].id.algorithm)
        return self._watch.add(ServiceProgress(user, uid, plan, reads_history=info is None or info.reads_history))

    def _create(self, served: ServiceProgress, suggestion: Suggestion) -> None:
        now = self._clock.monotonic()
        if served.created_at is not None and now - served.created_at < self._timing.settle:
            return
        try:
            self._objects.create(suggestion, served.plan)
        except BlockedError as error:
            blocked = error.trouble
            self._watch.change(served, lambda current: after_block(current, blocked, self._timing, now))
        except UnavailableError:  # an outage of the API server is not the service's fault
            self._watch.change(served, lambda current: replace(current, blocked=NO_TROUBLE))
            raise
        else:
            self._watch.change(served, lambda current: after_creation(current, now))

    def _remove(self, user: User, suggestion: Suggestion) -> None:
        algorithm = suggestion.spec.algorithm
        name = object_name(suggestion.name, algorithm.algorithm_name if algorithm is not None else "")
        served = self._watch.find(user)
        just_created = served is not None and served.created_at is not None
        self._objects.remove(suggestion.namespace, name, suggestion.metadata.uid, thorough=just_created)

    def _forget(self, user: User) -> None:
        self._clients.pop(user, None)
        self._watch.forget(user)

    def _client(self, served: ServiceProgress, connections: tuple[LazyChannel, ...]) -> ServiceClient:
        known = self._clients.get(served.user)
        if known is not None and known[0] == connections:
            return known[1]
        address = self._db_manager.address
        client = (
            JudgedServiceClient(*connections, reads_history=served.reads_history, db_manager_address=lambda: address)
            if len(connections) > 1
            else ServiceClient(*connections, reads_history=served.reads_history)
        )
        self._clients[served.user] = (connections, client)
        return client

    def _object_changed(self, event: InformerEvent[Object]) -> None:
        obj = event.new or event.old
        if obj is None:
            return
        suggestion = (obj["metadata"].get("labels") or {}).get(SUGGESTION_LABEL)
        if suggestion is None:
            return
        user = (event.key.namespace, suggestion)
        served = self._watch.find(user)
        if served is not None and event.new is None:
            self._watch.change(served, lambda current: replace(current, created_at=None))  # it may be recreated at once
        self._watch.wake()
        if served is None or event.new is None:
            self._notify(user)  # an experiment not served here may have objects to remove or to create

    def _notify(self, user: User) -> None:
        for listener in self._listeners:
            listener(*user)
