"""The tuning service of a cluster: the same answers as on one machine, from the objects of an API server.

    user --> ObjectTuningService --> KubernetesStore (objects), pod logs, Kubernetes events
                     |           --> DB manager (metrics), directly or through the API server
                     +--> Gate, Diagnostician

Every request is made with the rights of the user.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from katib.algorithm_services.catalog import Catalog
from katib.api.algorithms import AlgorithmCatalog, AlgorithmInfo
from katib.api.configuration import read_configuration
from katib.api.metrics import ObservationReader
from katib.api.names import EXPERIMENT_LABEL, TRIAL_LABEL
from katib.api.types import Experiment
from katib.cluster.access.connect import Cluster, connect
from katib.cluster.access.events import ClusterEventReader, server_events
from katib.cluster.access.facts import ClusterJobs, cluster_place, is_controller_at_work, services_of
from katib.cluster.access.metrics import MetricsAccess, direct_address
from katib.cluster.client.port_forward import PortForward
from katib.cluster.configuration.models import KatibConfig
from katib.cluster.configuration.source import CONFIG_MAP_KEY, CONFIG_MAP_NAME
from katib.cluster.installation_key import SECRET_NAME, InstallationTokens
from katib.cluster.pods.logs import ClusterOutput, PodLogs, ServerLogs
from katib.cluster.pods.reading import POD
from katib.cluster.services.plan import ClusterCatalog
from katib.cluster.store import KubernetesStore
from katib.cluster.template_warnings import template_errors, template_warnings
from katib.controllers.kinds import CONFIG_MAP, EXPERIMENT
from katib.errors import (
    AlreadyExistsError,
    FieldError,
    ForbiddenError,
    KatibError,
    KindNotInstalledError,
    UnavailableError,
)
from katib.explaining.diagnostician import Diagnostician
from katib.rpc.credentials import Credentials
from katib.rpc.tokens import Claims, Role, Tokens
from katib.runtime.clock import Clock, SystemClock
from katib.runtime.objects import Key, Kind, Object, ObjectStore
from katib.templates.source import OFFERED, OFFERED_LABEL
from katib.tuning.offered_templates import OfferedTemplates
from katib.tuning.ports import EventReader
from katib.tuning.service import TuningService
from katib.tuning.stored_service import ObjectTuningService
from katib.tuning.submission import FindObject, Gate, Home, StoredObjects

NAMESPACE = Kind("v1", "Namespace")

_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class OpenCluster:
    """A cluster that is ready to be asked.

    Attributes:
        service: What answers.
        namespace: Of the context.
        host: Address of the API server.
    """

    service: TuningService
    namespace: str
    host: str


@contextmanager
def open_cluster(
    kubeconfig: Path | None = None, context: str | None = None, *, db_manager: str = ""
) -> Iterator[OpenCluster]:
    """Open the tuning service of a cluster.

    Args:
        kubeconfig: As `katib.cluster.access.connect.connect` takes it.
        context: As above.
        db_manager: Address of the DB manager; empty: found by itself.

    Raises:
        KatibError: As `katib.cluster.access.connect.connect` does.
    """
    clock = SystemClock()
    cluster = connect(kubeconfig, context)
    with cluster.connection, open_metrics(cluster, db_manager, clock) as observations:
        service = service_on(cluster, observations, clock)
        yield OpenCluster(service, cluster.namespace, cluster.connection.host)


def open_metrics(cluster: Cluster, db_manager: str, clock: Clock) -> MetricsAccess:
    """Return the way to the observation log of a cluster, to be entered; without an address it is found by itself."""
    store = KubernetesStore(cluster.connection)
    tokens = InstallationTokens(store, Key(cluster.core_namespace, SECRET_NAME), may_make=False)
    return MetricsAccess(
        db_manager or direct_address(os.environ),
        store,
        cluster.core_namespace,
        partial(PortForward, cluster.access.load),
        clock,
        partial(reader_credentials, tokens),
    )


def service_on(
    cluster: Cluster,
    observations: ObservationReader,
    clock: Clock,
    *,
    scoped: Callable[[str | None], ObjectStore] | None = None,
    core_store: ObjectStore | None = None,
) -> TuningService:
    """Return the tuning service over what the connection of a cluster may see and do.

    Args:
        cluster: Which one.
        observations: Metrics.
        clock: Measures timeouts.
        scoped: Makes the store of one namespace, and for None of all; left out: a plain one over the connection.
        core_store: As `make_tuning_service` takes it.
    """
    scoped = scoped or (lambda namespace: KubernetesStore(cluster.connection, namespace=namespace))
    store = scoped(None)
    return make_tuning_service(
        store=store,
        scoped=scoped,
        observations=observations,
        events=ClusterEventReader(server_events(cluster.connection), store),
        logs=ServerLogs(cluster.connection),
        serves=partial(_serves, cluster),
        try_create=partial(_try_create, cluster),
        clock=clock,
        namespace=cluster.namespace,
        core_namespace=cluster.core_namespace,
        core_store=core_store,
    )


def make_tuning_service(
    *,
    store: ObjectStore,
    observations: ObservationReader,
    events: EventReader,
    logs: PodLogs,
    clock: Clock,
    namespace: str,
    core_namespace: str,
    scoped: Callable[[str], ObjectStore] | None = None,
    serves: Callable[[Kind], bool] = lambda _kind: True,
    try_create: Callable[[Object], None] = lambda _obj: None,
    core_store: ObjectStore | None = None,
) -> TuningService:
    """Return the tuning service over the objects of a cluster, wherever they are kept.

    Args:
        store: Objects of all kinds.
        observations: Metrics.
        events: Kubernetes events.
        logs: Logs of pods.
        clock: Measures timeouts.
        namespace: Where a document goes that names no namespace.
        core_namespace: Where Katib's own parts run.
        scoped: The store as seen through one namespace.
        serves: Returns whether the cluster has a kind.
        try_create: Raises what the API server would say to a new object, and stores nothing.
        core_store: The store as Katib's own parts may see it: which algorithms it offers and whether its controller
            works are no secrets of a namespace. Left out: only what the user who asks may read.
    """
    output = ClusterOutput(store, logs)
    core_store = core_store or store
    catalog = UsersCatalog(core_store, core_namespace)
    return ObjectTuningService(
        store=store,
        observations=observations,
        events=events,
        gate=Gate(catalog, ServingHome(serves), StoredObjects(store, knows_experiments=False)),
        output=output,
        explain=Diagnostician(
            store=store,
            observations=observations,
            events=events,
            clock=clock,
            jobs=ClusterJobs(store, events, output),
            services=partial(services_of, store),
            is_at_work=partial(is_controller_at_work, core_store, core_namespace),
            place=cluster_place(core_namespace),
        ).explain,
        catalog=catalog,
        clock=clock,
        namespace=namespace,
        aftermath=PodsAftermath(store, clock),
        templates=OfferedTemplates(
            store, shared=partial(_shared_templates, core_store, core_namespace), may_create=True
        ),
        namespaces=partial(_namespaces, store, core_namespace),
        scoped=scoped,
        try_create=try_create,
    )


def _shared_templates(core_store: ObjectStore, core_namespace: str) -> Sequence[Object]:
    """Return the templates of the installation, which every user may see."""
    with suppress(KatibError):
        return core_store.list(CONFIG_MAP, core_namespace, labels={OFFERED_LABEL: OFFERED}).items
    return ()


def _namespaces(store: ObjectStore, core_namespace: str) -> Sequence[str]:
    """Return all namespaces; to a user who may not list them, those with experiments that the user may list."""
    try:
        return sorted(Key.of(namespace).name for namespace in store.list(NAMESPACE).items)
    except ForbiddenError:
        return sorted({core_namespace, *(Key.of(obj).namespace for obj in store.list(EXPERIMENT).items)})


@dataclass(frozen=True, slots=True)
class PodsAftermath:
    """Waits for the pods of deleted trials. Fits `katib.tuning.ports.Aftermath`."""

    store: ObjectStore
    clock: Clock

    def wait(self, experiment: Key, trials: Sequence[Key], timeout_seconds: float) -> bool:
        """Wait until no pod of the trials is left; anyone who may not see pods does not wait for them."""
        names = {trial.name for trial in trials}
        deadline = self.clock.monotonic() + timeout_seconds
        while names and self._is_any_left(experiment, names):
            if self.clock.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def forget(self, _experiment: Key, _trials: Sequence[Key]) -> None:
        """Do nothing: the cluster lets events expire and removes logs with their pods."""

    def _is_any_left(self, experiment: Key, names: set[str]) -> bool:
        try:
            pods = self.store.list(POD, experiment.namespace, labels={EXPERIMENT_LABEL: experiment.name}).items
        except ForbiddenError:
            return False
        return any((pod["metadata"].get("labels") or {}).get(TRIAL_LABEL) in names for pod in pods)


def reader_credentials(tokens: Callable[[], Tokens], namespace: str) -> Credentials:
    """Return what we bring as a reader: what we were handed, else what the key of the installation signs for us.

    A user who may not read the key sends no token; then the DB manager says what to do.
    """
    handed = Credentials.of(os.environ)
    if handed.token:
        return handed
    try:
        token = tokens().token_of(Claims(Role.READER, namespace))
    except KatibError:
        return handed
    return Credentials(token, handed.authority)


def _serves(cluster: Cluster, kind: Kind) -> bool:
    try:
        cluster.connection.discovery.resource(kind.api_version, kind.kind)
    except KindNotInstalledError:
        return False
    except UnavailableError:
        return True  # not known: assume that it does
    return True


def _try_create(cluster: Cluster, obj: Object) -> None:
    """Check a new object with the API server and its webhooks."""
    kind, key = Kind.of(obj), Key.of(obj)
    path = cluster.connection.discovery.resource(kind.api_version, kind.kind).path(key.namespace)
    with suppress(AlreadyExistsError):  # what is there is resumed or updated
        cluster.connection.request("POST", path, query={"dryRun": "All"}, body=dict(obj))


class ServingHome(Home):
    """What a cluster says of experiments to its users: the webhook, which sees them next, knows more.

    Args:
        serves: Returns whether the cluster has a kind.
    """

    notes_workspace = False
    takes_callers = False

    def __init__(self, serves: Callable[[Kind], bool]) -> None:
        self._serves = serves

    def check(
        self, source: Mapping[str, Any], path: str, experiment: Experiment, _find: FindObject
    ) -> tuple[Sequence[FieldError], Sequence[str]]:
        """Return what is wrong with a template, and what will surprise.

        A kind of job that the cluster does not have is no error: it may be installed later.
        """
        kind = Kind.of(source)
        unserved = f"the cluster serves no {kind.kind} ({kind.api_version}) now; trials wait until it does"
        notices = [] if self._serves(kind) else [unserved]
        return (
            template_errors(source, path, experiment.spec),
            [*notices, *template_warnings(source, path, experiment.spec)],
        )


class UsersCatalog:
    """Fits `katib.api.algorithms.AlgorithmCatalog`.

    Where the KatibConfig may not be read, any name is taken to be offered, and the cluster's own admission decides.

    Args:
        store: Has the ConfigMap of the KatibConfig.
        core_namespace: Where it is.
    """

    def __init__(self, store: ObjectStore, core_namespace: str) -> None:
        self._store = store
        self._key = Key(core_namespace, CONFIG_MAP_NAME)
        self._ours = Catalog()

    def find(self, name: str, *, early_stopping: bool = False) -> AlgorithmInfo | None:
        """Return an algorithm by name, None when it is not offered."""
        offered = self._offered()
        if offered is not None:
            return offered.find(name, early_stopping=early_stopping)
        known = self._ours.find(name, early_stopping=early_stopping)
        return known or AlgorithmInfo(name, early_stopping=early_stopping)

    def all(self) -> Sequence[AlgorithmInfo]:
        """Return every algorithm that is known to be offered; else those of the default configuration."""
        return (self._offered() or self._ours).all()

    def _offered(self) -> AlgorithmCatalog | None:
        try:
            data = self._store.get(CONFIG_MAP, self._key).get("data") or {}
            config = read_configuration(KatibConfig, str(data.get(CONFIG_MAP_KEY, "")), f"ConfigMap {self._key}")
        except KatibError:
            return None
        return ClusterCatalog(lambda: config)
