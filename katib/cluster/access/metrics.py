"""Reading metrics from wherever we are: straight from the DB manager, or through the API server from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from katib.api.metrics import Change, MetricLog
from katib.cluster.environment import db_manager_address
from katib.cluster.pods.reading import POD
from katib.cluster.services.kinds import SERVICE
from katib.errors import KatibError, NotFoundError, UnavailableError
from katib.rpc.credentials import NO_CREDENTIALS, Credentials
from katib.rpc.db_manager_client import DbManagerClient
from katib.runtime.clock import Clock
from katib.runtime.objects import Key, Object, ObjectStore
from katib.tuning.ports import ObservationReader

DB_MANAGER = "katib-db-manager"
DB_MANAGER_PORT = 6789

PLAIN_PORT_NAME = "plain"
"""Port of a DB manager with certificates for those who come through a forwarded port."""

TIMEOUT_SECONDS = 20.0
_ASK_AGAIN_SECONDS = 10.0
"""How long a way that could not be found is not looked for again: a live table asks every second."""


Answer = TypeVar("Answer")


class Forward(Protocol):
    """A local address that leads to a pod."""

    @property
    def address(self) -> str:
        """Where to connect to."""


OpenForward = Callable[[Key, int], AbstractContextManager[Forward]]


def direct_address(environment: Mapping[str, str]) -> str:
    """Return where the DB manager answers us directly; empty outside of a cluster, where a way has to be found."""
    given = environment.get("KATIB_DB_MANAGER_ADDRESS", "")
    return given or (db_manager_address(environment) if "KUBERNETES_SERVICE_HOST" in environment else "")


@dataclass(frozen=True, slots=True)
class _Within:
    """The logs of one namespace."""

    access: MetricsAccess
    namespace: str

    def newest(self, trial_name: str, *, limit: int, metric_name: str = "") -> Sequence[MetricLog]:
        """Return the newest readings in the order of their curve."""
        return self.access.ask(self.namespace, lambda log: log.newest(trial_name, limit=limit, metric_name=metric_name))

    def curve(self, trial_name: str, metric_name: str, max_points: int) -> Sequence[MetricLog]:
        """Return a curve of at most so many readings."""
        return self.access.ask(self.namespace, lambda log: log.curve(trial_name, metric_name, max_points))

    def count(self, trial_name: str, *, metric_name: str = "") -> int:
        """Return the number of readings."""
        return self.access.ask(self.namespace, lambda log: log.count(trial_name, metric_name=metric_name))

    def changes(self, cursors: Mapping[str, int], metric_name: str = "") -> Sequence[Change]:
        """Return what arrived after these cursors."""
        return self.access.ask(self.namespace, lambda log: log.changes(cursors, metric_name))


class MetricsAccess:
    """Reads the observation log of a cluster. Fits `katib.tuning.ports.Observations`. Thread-safe.

    The connection is opened with the first call, and again when it was lost. A context manager that closes it.

    Args:
        address: Of the DB manager; empty to reach one of its pods through the API server.
        store: Has the Service and the pods of the DB manager.
        core_namespace: Where they are.
        forward: Opens a way to a port of a pod.
        clock: Measures how long a failure is remembered.
        credentials: Returns what the DB manager is brought where it is asked directly, for a namespace; all without.
    """

    def __init__(
        self,
        address: str,
        store: ObjectStore,
        core_namespace: str,
        forward: OpenForward,
        clock: Clock,
        credentials: Callable[[str], Credentials] = lambda _namespace: NO_CREDENTIALS,
    ) -> None:
        self._credentials = credentials
        self._address = address
        self._store = store
        self._namespace = core_namespace
        self._forward = forward
        self._clock = clock
        self._lock = threading.Lock()
        self._client: DbManagerClient | None = None
        self._way = ExitStack()
        self._failure: KatibError | None = None
        self._failed_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._close()

    def within(self, namespace: str) -> ObservationReader:
        """Return a reader of the logs of one namespace, for those who may not see the others."""
        return _Within(self, namespace)

    def ask(self, namespace: str, ask: Callable[[DbManagerClient], Answer]) -> Answer:
        """Return what the DB manager answers, asked in the name of a namespace."""
        log = self._open()
        try:
            return ask(self._speaking_for(log, namespace))
        except UnavailableError:
            if self._address:
                raise
            self._close(log)  # the pod may have been replaced meanwhile
            return ask(self._speaking_for(self._open(), namespace))

    def _speaking_for(self, log: DbManagerClient, namespace: str) -> DbManagerClient:
        """Return a client with a token; through a forwarded port none is needed."""
        token = self._credentials(namespace).token if self._address else ""
        return log.speaking_as(token) if token else log

    def _open(self) -> DbManagerClient:
        with self._lock:
            if self._client is not None:
                return self._client
            if self._failure is not None and self._clock.monotonic() - self._failed_at < _ASK_AGAIN_SECONDS:
                raise self._failure
            try:
                self._client = self._connect()
            except KatibError as error:
                self._failure, self._failed_at = error, self._clock.monotonic()
                raise
            self._failure = None
            return self._client

    def _connect(self) -> DbManagerClient:
        with ExitStack() as way:
            address, credentials = self._address, NO_CREDENTIALS
            if address:
                credentials = self._credentials("")
            else:
                pod, port = self._find_pod()
                address = way.enter_context(self._forward(pod, port)).address
            log = DbManagerClient(address, timeout_seconds=TIMEOUT_SECONDS, credentials=credentials)
            way.callback(log.close)
            self._way = way.pop_all()
            return log

    def _find_pod(self) -> tuple[Key, int]:
        """Return a ready pod of the DB manager, and the port it listens on."""
        key = Key(self._namespace, DB_MANAGER)
        try:
            service = self._store.get(SERVICE, key)
        except NotFoundError as error:
            raise UnavailableError(
                f"metrics: there is no Service {key}; install the DB manager, name its namespace in "
                "KATIB_CORE_NAMESPACE, or its address with --db-manager"
            ) from error
        labels = (service.get("spec") or {}).get("selector") or {}
        pods = self._store.list(POD, self._namespace, labels=labels).items if labels else ()
        ready = next((pod for pod in pods if _is_ready(pod)), None)
        if ready is None:
            raise UnavailableError(
                f"metrics: no pod of Service {key} is ready; look at it: "
                f"kubectl -n {self._namespace} describe deployment {DB_MANAGER}"
            )
        return Key.of(ready), _target_port(service, ready)

    def _close(self, only: DbManagerClient | None = None) -> None:
        with self._lock:
            if only is not None and self._client is not only:
                return  # another thread has opened a new way already
            self._client = None
            way, self._way = self._way, ExitStack()
        way.close()


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _target_port(service: Object, pod: Object) -> int:
    """Return the port of the pod that the Service leads to, or the one for forwarding that speaks plain text."""
    ports = (service.get("spec") or {}).get("ports") or ()
    target = next((port.get("targetPort") for port in ports if port.get("port") == DB_MANAGER_PORT), None)
    named = {
        port.get("name"): port.get("containerPort")
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
    }
    found = named.get(PLAIN_PORT_NAME) or named.get(target, target)
    return found if isinstance(found, int) else DB_MANAGER_PORT
