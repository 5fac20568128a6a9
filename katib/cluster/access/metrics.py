"""Reading metrics from wherever we are: straight from the DB manager, or through the API server from outside."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import datetime
from typing import Protocol, Self

from katib.api.metrics import MetricLog
from katib.cluster.environment import db_manager_address
from katib.cluster.pods.reading import POD
from katib.errors import KatibError, NotFoundError, UnavailableError
from katib.rpc.db_manager_client import DbManagerClient
from katib.runtime.clock import Clock
from katib.runtime.objects import Key, Object, ObjectStore
from katib.services.cluster.kinds import SERVICE

DB_MANAGER = "katib-db-manager"
DB_MANAGER_PORT = 6789

TIMEOUT_SECONDS = 20.0
_ASK_AGAIN_SECONDS = 10.0
"""How long a way that could not be found is not looked for again: a live table asks every second."""


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


class MetricsAccess:
    """Reads the observation log of a cluster. Fits `katib.homes.ports.ObservationReader`. Thread-safe.

    The way is found with the first call, and anew when it was lost. A context manager that closes it.

    Args:
        address: Of the DB manager; empty to reach one of its pods through the API server.
        store: Has the Service and the pods of the DB manager.
        core_namespace: Where they are.
        forward: Opens a way to a port of a pod.
        clock: Measures how long a failure is remembered.
    """

    def __init__(
        self, address: str, store: ObjectStore, core_namespace: str, forward: OpenForward, clock: Clock
    ) -> None:
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

    def read(
        self,
        trial_name: str,
        *,
        metric_name: str = "",
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int | None = None,
        cursor: str = "",
    ) -> tuple[Sequence[MetricLog], str]:
        """Return readings in order of time."""

        def ask(log: DbManagerClient) -> tuple[Sequence[MetricLog], str]:
            return log.read(trial_name, metric_name=metric_name, start=start, end=end, limit=limit, cursor=cursor)

        log = self._open()
        try:
            return ask(log)
        except UnavailableError:
            if self._address:
                raise
            self._close(log)  # the pod may have been replaced meanwhile
            return ask(self._open())

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
            address = self._address
            if not address:
                pod, port = self._find_pod()
                address = way.enter_context(self._forward(pod, port)).address
            log = DbManagerClient(address, timeout_seconds=TIMEOUT_SECONDS)
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
    """Return the port of the pod that the Service leads to, which may be given by name."""
    ports = (service.get("spec") or {}).get("ports") or ()
    target = next((port.get("targetPort") for port in ports if port.get("port") == DB_MANAGER_PORT), None)
    named = {
        port.get("name"): port.get("containerPort")
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
    }
    found = named.get(target, target)
    return found if isinstance(found, int) else DB_MANAGER_PORT
