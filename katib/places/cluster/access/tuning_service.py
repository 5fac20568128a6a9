"""Tuning service of a cluster: the same answers as on one machine, from the objects of an API server.

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

from katib.engine.algorithm_services.catalog import Catalog
from katib.engine.controllers.kinds import CONFIG_MAP, EXPERIMENT, POD
from katib.engine.runtime.clock import Clock, SystemClock
from katib.engine.runtime.objects import Key, Kind, Object, ObjectStore
from katib.errors import (
    AlreadyExistsError,
    FieldError,
    ForbiddenError,
    KatibError,
    KindNotInstalledError,
    UnavailableError,
)
from katib.model.algorithms import AlgorithmCatalog, AlgorithmInfo
from katib.model.configuration import read_configuration
from katib.model.metrics import ObservationReader
from katib.model.names import EXPERIMENT_LABEL, TRIAL_LABEL
from katib.model.templates.source import OFFERED, OFFERED_LABEL
from katib.model.types import Experiment
from katib.places.cluster.access.connect import UserCluster, connect
from katib.places.cluster.access.events import ClusterEventReader, server_events
from katib.places.cluster.access.facts import ClusterFacts, KatibComponents
from katib.places.cluster.access.metrics import MetricsAccess, direct_address
from katib.places.cluster.client.port_forward import PortForward
from katib.places.cluster.configuration.models import KatibConfig
from katib.places.cluster.configuration.source import CONFIG_MAP_KEY, CONFIG_MAP_NAME
from katib.places.cluster.installation_key import SECRET_NAME, InstallationTokens
from katib.places.cluster.pods.logs import ClusterOutput, server_logs
from katib.places.cluster.services.plan import ClusterCatalog
from katib.places.cluster.store import KubernetesStore
from katib.places.cluster.template_warnings import template_errors, template_warnings
from katib.service.explaining.diagnostician import Diagnostician
from katib.service.tuning.offered_templates import OfferedTemplates
from katib.service.tuning.ports import CallersLog, EventReader, Namespaces, Records
from katib.service.tuning.service import TuningService
from katib.service.tuning.stored_service import ObjectTuningService
from katib.service.tuning.submission import FindObject, Gate, Home, StoredObjects
from katib.wire.rpc.credentials import DbManagerCredentials
from katib.wire.rpc.tokens import CallerRole, TokenClaims, TokenSigner

NAMESPACE = Kind("v1", "Namespace")

_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class OpenCluster:
    """An open cluster."""

    service: TuningService
    namespace: str
    host: str


@contextmanager
def open_cluster(
    kubeconfig: Path | None = None, context: str | None = None, *, db_manager: str = ""
) -> Iterator[OpenCluster]:
    """Open the tuning service of a cluster.

    Args:
        kubeconfig: As in `katib.places.cluster.access.connect.connect`.
        context: As in `katib.places.cluster.access.connect.connect`.
        db_manager: Address of the DB manager; discovered if empty.

    Raises:
        KatibError: As `katib.places.cluster.access.connect.connect` does.
    """
    clock = SystemClock()
    cluster = connect(kubeconfig, context)
    with cluster.connection, open_metrics(cluster, db_manager, clock) as observations:
        service = service_on(cluster, observations, clock)
        yield OpenCluster(service, cluster.namespace, cluster.connection.host)


def open_metrics(cluster: UserCluster, db_manager: str, clock: Clock) -> MetricsAccess:
    """Return the observation log of a cluster, as a context manager; without an address it is discovered."""
    store = KubernetesStore(cluster.connection)
    tokens = InstallationTokens(store, Key(cluster.core_namespace, SECRET_NAME), may_make=False)
    return MetricsAccess(
        db_manager or direct_address(os.environ),
        store,
        cluster.core_namespace,
        partial(PortForward, cluster.access.configuration),
        clock,
        partial(reader_credentials, tokens),
        partial(_signed, tokens, CallerRole.CONTROLLER),
    )


def service_on(
    cluster: UserCluster,
    observations: ObservationReader,
    clock: Clock,
    *,
    scoped: Callable[[str | None], ObjectStore] | None = None,
    core_store: ObjectStore | None = None,
) -> TuningService:
    """Return the tuning service over the objects that a connection may read and change.

    Args:
        scoped: Returns the store of a namespace, or of all for None; by default a plain store over the connection.
        core_store: Store with the rights of Katib's own components; by default the user's.
    """
    scoped = scoped or (lambda namespace: KubernetesStore(cluster.connection, namespace=namespace))
    store = scoped(None)
    core = KatibComponents(cluster.core_namespace, core_store or store)
    return make_tuning_service(
        store,
        observations,
        ClusterEventReader(server_events(cluster.connection), store),
        ClusterOutput(store, server_logs(cluster.connection)),
        ClusterNamespaces(store, cluster.namespace, core, scoped),
        ServerHome(cluster),
        core,
        clock,
    )


def make_tuning_service(
    store: ObjectStore,
    observations: ObservationReader,
    events: EventReader,
    output: ClusterOutput,
    namespaces: ClusterNamespaces,
    home: ServingHome,
    core: KatibComponents,
    clock: Clock,
) -> TuningService:
    """Return the tuning service over the objects of a cluster, in any store."""
    callers = CallersLog(observations.writer) if isinstance(observations, MetricsAccess) else None
    records = Records(store, observations, events, lambda: output, callers)
    gate = Gate(UsersCatalog(core), home, StoredObjects(store, knows_experiments=False))
    facts = ClusterFacts(store, events, output, core)
    return ObjectTuningService(
        records,
        gate,
        Diagnostician(records, facts, clock).explain,
        clock,
        namespaces=namespaces,
        aftermath=PodsAftermath(store, clock),
        templates=lambda: OfferedTemplates(store, shared=partial(_shared_templates, core), may_create=True),
    )


def _shared_templates(core: KatibComponents) -> Sequence[Object]:
    """Return the templates of the installation, which every user may read."""
    with suppress(KatibError):
        return core.store.list(CONFIG_MAP, core.namespace, labels={OFFERED_LABEL: OFFERED}).items
    return ()


class ClusterNamespaces(Namespaces):
    """Namespaces of a cluster, with the rights of a user.

    Args:
        scoped: Returns the store of one namespace; by default `store` serves each.
    """

    def __init__(
        self,
        store: ObjectStore,
        default: str,
        core: KatibComponents,
        scoped: Callable[[str], ObjectStore] | None = None,
    ) -> None:
        super().__init__(store, default)
        self._core = core
        self._scoped = scoped

    def names(self) -> Sequence[str]:
        """Return all namespaces, or those with experiments if the user may list only these."""
        try:
            return sorted(Key.of(namespace).name for namespace in self._store.list(NAMESPACE).items)
        except ForbiddenError:
            return sorted(
                {self._core.namespace, *(Key.of(obj).namespace for obj in self._store.list(EXPERIMENT).items)}
            )

    def store_of(self, namespace: str) -> ObjectStore:
        """Return the store of one namespace, for users who may not watch all namespaces."""
        return self._store if self._scoped is None else self._scoped(namespace)


@dataclass(frozen=True, slots=True)
class PodsAftermath:
    """Waits for the pods of deleted trials. Fits `katib.service.tuning.ports.Aftermath`."""

    store: ObjectStore
    clock: Clock

    def wait(self, experiment: Key, trials: Sequence[Key], timeout_seconds: float) -> bool:
        """Wait until no pod of the trials is left; do not wait if the user may not read pods."""
        names = {trial.name for trial in trials}
        deadline = self.clock.monotonic() + timeout_seconds
        while names and self._is_any_left(experiment, names):
            if self.clock.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def forget(self, _experiment: Key, _trials: Sequence[Key]) -> None:
        """Do nothing: the cluster expires events and removes logs with their pods."""

    def _is_any_left(self, experiment: Key, names: set[str]) -> bool:
        try:
            pods = self.store.list(POD, experiment.namespace, labels={EXPERIMENT_LABEL: experiment.name}).items
        except ForbiddenError:
            return False
        return any((pod["metadata"].get("labels") or {}).get(TRIAL_LABEL) in names for pod in pods)


def reader_credentials(tokens: Callable[[], TokenSigner], namespace: str) -> DbManagerCredentials:
    """Return the credentials of a reader: those of the environment, else a token signed with the installation's key.

    A user who may not read the key sends no token; the error of the DB manager then names the remedy.
    """
    handed = DbManagerCredentials.of(os.environ)
    return handed if handed.token else _signed(tokens, CallerRole.READER, namespace)


def _signed(tokens: Callable[[], TokenSigner], role: CallerRole, namespace: str) -> DbManagerCredentials:
    """Return a token signed with the installation's key, or the environment's credentials if the key cannot be read."""
    handed = DbManagerCredentials.of(os.environ)
    try:
        token = tokens().token_of(TokenClaims(role, namespace))
    except KatibError:
        return handed
    return DbManagerCredentials(token, handed.authority)


class ServingHome(Home):
    """Checks of experiments by a cluster, for its users. The webhook, which checks them next, knows more."""

    notes_workspace = False
    keeps_jobs = False  # the kind may not be installed, and its controller may differ

    def serves(self, _kind: Kind) -> bool:
        """Return whether the cluster serves a kind; always True here."""
        return True

    def check(
        self, source: Mapping[str, Any], path: str, experiment: Experiment, _find: FindObject
    ) -> tuple[Sequence[FieldError], Sequence[str]]:
        """Return the errors and warnings for a template.

        A kind of job that the cluster does not serve is not an error: it may be installed later.
        """
        kind = Kind.of(source)
        unserved = f"the cluster serves no {kind.kind} ({kind.api_version}) now; trials wait until it does"
        notices = [] if self.serves(kind) else [unserved]
        return (
            template_errors(source, path, experiment.spec),
            [*notices, *template_warnings(source, path, experiment.spec)],
        )


class ServerHome(ServingHome):
    """Checks of experiments that ask the API server."""

    def __init__(self, cluster: UserCluster) -> None:
        self._connection = cluster.connection

    def serves(self, kind: Kind) -> bool:
        """Return whether the cluster serves a kind; True if the API server does not answer."""
        with suppress(UnavailableError):
            try:
                self._connection.discovery.resource(kind.api_version, kind.kind)
            except KindNotInstalledError:
                return False
        return True

    def try_create(self, experiment: Experiment) -> None:
        """Check a new experiment with the API server and its webhooks."""
        path = self._connection.discovery.resource(EXPERIMENT.api_version, EXPERIMENT.kind).path(experiment.namespace)
        with suppress(AlreadyExistsError):  # an existing experiment is resumed or updated
            self._connection.request("POST", path, query={"dryRun": "All"}, body=experiment.encode())


class UsersCatalog:
    """Algorithms offered to users of a cluster. Implements `katib.model.algorithms.AlgorithmCatalog`.

    If the KatibConfig may not be read, any name is accepted here, and the cluster's admission decides.

    Args:
        core: Katib's own components, with the ConfigMap of the KatibConfig.
    """

    def __init__(self, core: KatibComponents) -> None:
        self._store = core.store
        self._key = Key(core.namespace, CONFIG_MAP_NAME)
        self._ours = Catalog()

    def find(self, name: str, *, early_stopping: bool = False) -> AlgorithmInfo | None:
        offered = self._offered()
        if offered is not None:
            return offered.find(name, early_stopping=early_stopping)
        known = self._ours.find(name, early_stopping=early_stopping)
        return known or AlgorithmInfo(name, early_stopping=early_stopping)

    def all(self) -> Sequence[AlgorithmInfo]:
        """Return all algorithms known to be offered, or those of the default configuration."""
        return (self._offered() or self._ours).all()

    def _offered(self) -> AlgorithmCatalog | None:
        try:
            data = self._store.get(CONFIG_MAP, self._key).get("data") or {}
            config = read_configuration(KatibConfig, str(data.get(CONFIG_MAP_KEY, "")), f"ConfigMap {self._key}")
        except KatibError:
            return None
        return ClusterCatalog(lambda: config)
