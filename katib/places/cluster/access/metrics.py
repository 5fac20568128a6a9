"""Access to the metrics of a cluster: the DB manager directly, or through the API server from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Self

import grpc

from katib.engine.controllers.kinds import POD
from katib.engine.runtime.clock import Clock
from katib.engine.runtime.objects import Key, Object, ObjectStore
from katib.errors import KatibError, NotFoundError, UnavailableError
from katib.places.cluster.environment import db_manager_address
from katib.places.cluster.services.plan import SERVICE
from katib.wire.rpc.credentials import NO_CREDENTIALS, DbManagerCredentials
from katib.wire.rpc.db_manager_client import DbManagerClient, DbManagerConnection, Metadata

DB_MANAGER = "katib-db-manager"
DB_MANAGER_PORT = 6789

PLAIN_PORT_NAME = "plain"
"""Plain-text port of a DB manager with certificates, for forwarded connections."""

TIMEOUT_SECONDS = 20.0
_ASK_AGAIN_SECONDS = 10.0
"""How long a failed lookup is remembered: a live table asks every second."""


OpenForward = Callable[[Key, int], AbstractContextManager[str]]
"""Opens a local address that leads to a port of a pod."""


def direct_address(environment: Mapping[str, str]) -> str:
    """Return the address of the DB manager; empty outside a cluster, where it has to be discovered."""
    given = environment.get("KATIB_DB_MANAGER_ADDRESS", "")
    return given or (db_manager_address(environment) if "KUBERNETES_SERVICE_HOST" in environment else "")


class _FoundConnection(DbManagerConnection):
    """Connection to a pod of the DB manager through the API server, found again after it is lost.

    Args:
        clock: Measures how long a failure is remembered.
    """

    def __init__(self, store: ObjectStore, namespace: str, forward: OpenForward, clock: Clock) -> None:
        super().__init__(self._find)
        self._store = store
        self._namespace = namespace
        self._forward = forward
        self._clock = clock
        self._failure: KatibError | None = None
        self._failed_at = 0.0

    def call(self, method: str, request: Any, timeout_seconds: float, metadata: Metadata) -> Any:
        """Return the reply, possibly from another pod."""
        stub = self.opened()
        try:
            return self.call_on(stub, method, request, timeout_seconds, metadata)
        except UnavailableError:
            self.drop(stub)  # the pod may have been replaced meanwhile
            return super().call(method, request, timeout_seconds, metadata)

    def _find(self, way: ExitStack) -> grpc.Channel:
        if self._failure is not None and self._clock.monotonic() - self._failed_at < _ASK_AGAIN_SECONDS:
            raise self._failure
        try:
            pod, port = self._find_pod()
            address = way.enter_context(self._forward(pod, port))
        except KatibError as error:
            self._failure, self._failed_at = error, self._clock.monotonic()
            raise
        self._failure = None
        return way.enter_context(NO_CREDENTIALS.channel(address))

    def _find_pod(self) -> tuple[Key, int]:
        """Return a ready pod of the DB manager and its port."""
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


class MetricsAccess(DbManagerClient):
    """Observation log of a cluster. A context manager that closes the connection, which the first call opens.

    Args:
        address: Address of the DB manager; empty to reach one of its pods through the API server, where no token is
            needed.
        store: Store with the Service and the pods of the DB manager.
        clock: Measures how long a failure is remembered.
        credentials: Returns the credentials for reading a namespace (empty: all) from the DB manager at `address`.
        writing: Returns the credentials for readings of ask-and-tell trials of a namespace.

    Attributes:
        writer: Client for those readings. Closed together with this object.
    """

    def __init__(
        self,
        address: str,
        store: ObjectStore,
        core_namespace: str,
        forward: OpenForward,
        clock: Clock,
        credentials: Callable[[str], DbManagerCredentials] = lambda _namespace: NO_CREDENTIALS,
        writing: Callable[[str], DbManagerCredentials] = lambda _namespace: NO_CREDENTIALS,
    ) -> None:
        connection: DbManagerConnection
        if address:
            peer = f"DB manager at {address}"
            connection = DbManagerConnection(lambda way: way.enter_context(credentials("").channel(address)), peer)
            super().__init__(
                connection, timeout_seconds=TIMEOUT_SECONDS, token_of=lambda namespace: credentials(namespace).token
            )
        else:
            connection = _FoundConnection(store, core_namespace, forward, clock)
            super().__init__(connection, timeout_seconds=TIMEOUT_SECONDS)
        self.writer = DbManagerClient(
            connection, timeout_seconds=TIMEOUT_SECONDS, token_of=lambda namespace: writing(namespace).token
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _target_port(service: Object, pod: Object) -> int:
    """Return the target port of the Service in the pod, or the plain-text port for forwarding."""
    ports = (service.get("spec") or {}).get("ports") or ()
    target = next((port.get("targetPort") for port in ports if port.get("port") == DB_MANAGER_PORT), None)
    named = {
        port.get("name"): port.get("containerPort")
        for container in pod["spec"].get("containers") or ()
        for port in container.get("ports") or ()
    }
    found = named.get(PLAIN_PORT_NAME) or named.get(target, target)
    return found if isinstance(found, int) else DB_MANAGER_PORT
