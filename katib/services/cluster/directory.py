"""The services of a cluster: a Deployment and a Service for each suggestion that needs them."""

from __future__ import annotations

from collections.abc import Callable

from katib.api.algorithms import AlgorithmCatalog
from katib.api.conditions import is_true
from katib.api.types import Experiment, ResumePolicy, Suggestion, SuggestionCondition
from katib.configuration.models import KatibConfig
from katib.errors import TerminalError, UnavailableError
from katib.rpc.clients import ServiceClient
from katib.rpc.connection import Connection
from katib.runtime.clock import Clock, SystemClock
from katib.runtime.informer import Informer, InformerEvent
from katib.runtime.objects import Key, Object, ObjectStore
from katib.services.cluster.kinds import DEPLOYMENT, SERVICE, SUGGESTION_LABEL, object_name
from katib.services.cluster.objects import BlockedError, ServiceObjects
from katib.services.cluster.plan import plan_for
from katib.services.cluster.trouble import Trouble
from katib.services.cluster.watch import ClusterTiming, Served, ServiceWatch, close_connections
from katib.services.host import Listener
from katib.services.states import ServiceState, User

_SYNC_SECONDS = 10.0


class ClusterServices:
    """Fits `katib.controllers.ports.ServiceDirectory`. Thread-safe; no call waits for a service.

    Args:
        store: Where the objects are. It may leave Deployments and Services without `SERVICE_SELECTORS` out.
        suggestion_of: Returns the Suggestion of a key from a cache; it owns what is created.
        config: Returns the KatibConfig in force.
        catalog: Says which services need no trials.
        db_manager_address: Returns where early stopping services read metrics.
        grpc_probes: Whether containers get gRPC probes: from Kubernetes 1.24 on, unless the KatibConfig forbids it.
        all_pods: Sees the pods of services, where `store` leaves pods out.
        timing: How long things may take.
        clock: Where that is measured.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        suggestion_of: Callable[[Key], Suggestion | None],
        config: Callable[[], KatibConfig],
        catalog: AlgorithmCatalog,
        db_manager_address: Callable[[], str],
        grpc_probes: bool,
        all_pods: ObjectStore | None = None,
        timing: ClusterTiming | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._suggestion_of = suggestion_of
        self._config = config
        self._catalog = catalog
        self._db_manager_address = db_manager_address
        self._timing = timing or ClusterTiming()
        self._clock = clock or SystemClock()
        self._deployments = Informer(store, DEPLOYMENT, _as_is, clock=self._clock)
        self._services = Informer(store, SERVICE, _as_is, clock=self._clock)
        self._objects = ServiceObjects(
            store, self._deployments, self._services, all_pods=all_pods or store, grpc_probes=grpc_probes
        )
        self._watch = ServiceWatch(self._objects, self._clock, self._timing, self._tell)
        self._clients: dict[User, tuple[tuple[Connection, ...], ServiceClient]] = {}
        self._listeners: list[Listener] = []
        for informer in (self._deployments, self._services):
            informer.add_handler(self._object_changed)

    def start(self) -> None:
        """Begin to follow Deployments and Services; returns when the caches are filled, or after a while."""
        for informer in (self._deployments, self._services):
            informer.start()
        for informer in (self._deployments, self._services):
            informer.wait_for_sync(_SYNC_SECONDS)
        self._watch.start()

    def close(self) -> None:
        """Stop following and close the connections; what runs in the cluster goes on. Closing twice is fine."""
        self._watch.stop()
        for informer in (self._deployments, self._services):
            informer.stop()

    def on_change(self, listener: Listener) -> None:
        """Have a listener told of every experiment whose service became ready, stopped being so, or has failed."""
        self._listeners.append(listener)

    def service_for(self, experiment: Experiment) -> ServiceClient | None:
        """Return a client when the services are ready, None while they start; the same client as long as they live.

        Raises:
            TerminalError: They cannot be started, with the cause.
            UnavailableError: The cluster cannot be reached, or the KatibConfig offers no such algorithm any more.
        """
        suggestion = self._suggestion_of(Key(experiment.namespace, experiment.name))
        if suggestion is None or not _owns(experiment, suggestion):
            return None
        served = self._served(suggestion)
        if served.failure:
            raise TerminalError(served.failure)
        if served.plan.has_objects and not self._objects.are_there(served.key, served.owner_uid):
            self._create(served, suggestion)
        with self._watch.lock:
            if served.ready:
                return self._client(served)
        self._watch.wake()
        return None

    def waiting_for(self, experiment: Experiment) -> str:
        """Return what of the cluster keeps the services from being ready; empty when nothing does."""
        with self._watch.lock:
            served = self._watch.served.get((experiment.namespace, experiment.name))
            return served.trouble.words if served is not None and served.trouble.may_pass else ""

    def release(self, experiment: Experiment) -> None:
        """Remove what serves an experiment; volumes stay. Cheap when nothing is there; releasing twice is fine.

        With the policy LongRunning only a failed suggestion is released. What belongs to a Suggestion that is gone is
        removed by the cluster.

        Raises:
            UnavailableError: The cluster cannot be reached; release again.
        """
        user = (experiment.namespace, experiment.name)
        suggestion = self._suggestion_of(Key(*user))
        if suggestion is not None and _owns(experiment, suggestion):
            if _is_long_running(experiment) and not is_true(suggestion.status.conditions, SuggestionCondition.FAILED):
                return
            self._remove(user, suggestion)
        self._forget(user)

    def states_of(self, namespace: str, experiment: str) -> tuple[ServiceState, ...]:
        """Return how the services are doing that an experiment waits for or uses."""
        with self._watch.lock:
            served = self._watch.served.get((namespace, experiment))
            if served is None:
                return ()
            trouble = served.failure or served.trouble.words
            state = "ready" if served.ready else "failing" if self._is_failing(served) else "starting"
            return tuple(
                ServiceState(
                    endpoint.id,
                    state,
                    last_error=trouble,
                    address=endpoint.address or f"{served.plan.name}.{namespace}:{endpoint.port}",
                )
                for endpoint in served.plan.endpoints
            )

    def _is_failing(self, served: Served) -> bool:
        if served.failure or served.trouble.may_pass:
            return True
        since = served.trouble_since
        return since is not None and self._clock.monotonic() - since >= self._timing.grace

    def _served(self, suggestion: Suggestion) -> Served:
        user = (suggestion.namespace, suggestion.name)
        uid = suggestion.metadata.uid
        with self._watch.lock:
            served = self._watch.served.get(user)
            if served is not None and served.owner_uid == uid:
                return served
        self._forget(user)
        plan = plan_for(suggestion, self._config())
        info = self._catalog.find(plan.endpoints[0].id.algorithm)  # both may ask the API server: not under the lock
        served = Served(user, uid, plan, reads_history=info is None or info.reads_history)
        with self._watch.lock:
            served = self._watch.served.setdefault(user, served)
        self._watch.wake()
        return served

    def _create(self, served: Served, suggestion: Suggestion) -> None:
        now = self._clock.monotonic()
        with self._watch.lock:
            if served.created_at is not None and now - served.created_at < self._timing.settle:
                return
        try:
            self._objects.create(suggestion, served.plan)
        except BlockedError as error:
            with self._watch.lock:
                served.blocked, served.created_at, served.retry_at = error.trouble, None, now + self._timing.retry
        except UnavailableError:
            with self._watch.lock:
                served.blocked = Trouble()  # while the API server is away nothing can be held against the service
            raise
        else:
            with self._watch.lock:
                served.blocked, served.created_at = Trouble(), now

    def _remove(self, user: User, suggestion: Suggestion) -> None:
        algorithm = suggestion.spec.algorithm
        name = object_name(suggestion.name, algorithm.algorithm_name if algorithm is not None else "")
        with self._watch.lock:
            served = self._watch.served.get(user)
            just_created = served is not None and served.created_at is not None
        self._objects.remove(suggestion.namespace, name, suggestion.metadata.uid, thorough=just_created)

    def _forget(self, user: User) -> None:
        with self._watch.lock:
            self._clients.pop(user, None)
            served = self._watch.served.pop(user, None)
            if served is not None:
                served.released = True
                close_connections(served)

    def _client(self, served: Served) -> ServiceClient:
        """Return the client over the present connections; with the lock."""
        connections = tuple(served.connections[i] for i in range(len(served.plan.endpoints)))
        known = self._clients.get(served.user)
        if known is not None and known[0] == connections:
            return known[1]
        client = ServiceClient(
            *connections, reads_history=served.reads_history, db_manager_address=self._db_manager_address
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
        with self._watch.lock:
            served = self._watch.served.get(user)
            if served is not None and event.new is None:
                served.created_at = None  # it may be made anew at once
        self._watch.wake()
        if served is None or event.new is None:
            self._tell(user)  # whoever is not served here may have something to remove or to make

    def _tell(self, user: User) -> None:
        for listener in self._listeners:
            listener(*user)


def _owns(experiment: Experiment, suggestion: Suggestion) -> bool:
    owners = suggestion.metadata.owner_references
    return any(owner.controller and owner.uid == experiment.metadata.uid for owner in owners)


def _is_long_running(experiment: Experiment) -> bool:
    return experiment.spec.resume_policy == ResumePolicy.LONG_RUNNING


def _as_is(obj: Object) -> Object:
    return obj
