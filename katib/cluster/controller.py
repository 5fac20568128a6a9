"""One controller process: what every replica does, and when it begins to lead.

Every replica answers webhooks, probes and Prometheus. One of them leads (`leading.py`). A leader that loses its Lease
ends; whoever keeps processes alive starts it again, and it contends anew.
"""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from katib.admission.ca_bundle import CaBundle
from katib.admission.certificate_files import CertificateFiles
from katib.admission.certificate_secret import CertificateSecret, Terms
from katib.admission.certificates import CertificateSource, dns_names
from katib.admission.reviews import Handler, Review, Verdict
from katib.admission.server import AdmissionServer
from katib.api.names import TRIAL_LABEL
from katib.api.types import Experiment
from katib.cluster.environment import DEFAULT_CORE_NAMESPACE
from katib.cluster.leader.fencing import FencedLog, FencedStore
from katib.cluster.leader.leading import CLUSTER_SETTINGS, Leading, Surroundings
from katib.cluster.leader.lease import Leadership, LeaseTimes
from katib.cluster.monitoring.health import Pages, check_page, metrics_page
from katib.cluster.monitoring.metrics import ControllerMetrics
from katib.cluster.pods.reading import POD
from katib.cluster.version import ClusterVersion
from katib.cluster.webhooks.experiments import ExperimentAdmission
from katib.cluster.webhooks.pods import PodAdmission
from katib.cluster.webhooks.surroundings import TrialSurroundings
from katib.configuration.models import KatibConfig
from katib.controllers.kinds import EXPERIMENT, SUGGESTION, TRIAL
from katib.controllers.settings import ControllerSettings
from katib.errors import FieldError, InvalidError
from katib.kube import Connection, RequestInfo
from katib.rpc.db_manager_client import DbManagerClient
from katib.runtime.clock import SystemClock
from katib.runtime.interpreter import tune_interpreter
from katib.runtime.objects import Key, Kind
from katib.services.cluster.catalog import ClusterCatalog
from katib.services.cluster.config_map import config_source
from katib.services.cluster.kinds import DEPLOYMENT, SERVICE, SERVICE_SELECTORS
from katib.stores.kubernetes import KubernetesEvents, KubernetesStore

COMPONENT = "katib-controller"
WEBHOOK_CONFIGURATION = "katib.kubeflow.org"

DB_MANAGER_SECONDS = 5.0
"""How long a worker waits for the DB manager: one that is away must not keep the workers from everything else."""

_BACKGROUND = frozenset({EXPERIMENT, SUGGESTION, TRIAL, DEPLOYMENT, SERVICE})
"""Kinds that go at once when they are deleted. Everything else is a job: it stays until its pods are gone, so that a
trial is not over while a program of it still runs."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """How a controller runs.

    Attributes:
        config: The part `init` of the KatibConfig.
        core_namespace: Where the product is installed.
        db_manager_address: Where pods reach the DB manager, and so do we unless `own_db_manager_address` is set.
        own_db_manager_address: Where we reach the DB manager, when that is elsewhere.
        certificates: Directory of the webhooks' certificate when somebody else makes it.
        webhook_names: Further names and addresses that the webhooks are reached by.
        identity: Who we are to other contenders for the Lease.
        lease_times: How long the Lease lasts.
        settings: Knobs of the controllers.
    """

    config: KatibConfig = field(default_factory=KatibConfig)
    core_namespace: str = DEFAULT_CORE_NAMESPACE
    db_manager_address: str = ""
    own_db_manager_address: str = ""
    certificates: Path | None = None
    webhook_names: Sequence[str] = ()
    identity: str = field(default_factory=lambda: f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}")
    lease_times: LeaseTimes = field(default_factory=LeaseTimes)
    settings: ControllerSettings = CLUSTER_SETTINGS


class ClusterController:
    """One replica of the controller. `run` does everything."""

    def __init__(self, connection: Connection, options: ControllerOptions) -> None:
        self._connection = connection
        self._options = options
        self._clock = SystemClock()
        self._metrics = ControllerMetrics()
        self._store = KubernetesStore(connection, foreground=_waits_for_pods)
        self._config = config_source(self._store, options.core_namespace, self._clock, on_trouble=_log.warning)
        self._version = ClusterVersion.of(connection)
        self._events = KubernetesEvents(connection, COMPONENT, self._clock)
        self._experiments = self._experiment_admission()
        self._pods = self._pod_admission()
        self._stop = threading.Event()
        self._lost = threading.Event()
        connection.observe(self._count)

    def stop(self) -> None:
        """Have `run` come to its end. From any thread or signal handler."""
        self._stop.set()

    def run(self) -> int:
        """Work until stopped; return 0, or 1 when the Lease was lost.

        Raises:
            KatibError: The API server does not answer, or does not let us in.
            OSError: A port is taken.
        """
        tune_interpreter()
        with ExitStack() as stack:
            self._events.start()
            stack.callback(self._events.stop)
            port = self._options.config.init.controller.webhook_port
            webhooks = stack.enter_context(
                AdmissionServer(self._handlers(), self._certificates(), port=port, clock=self._clock)
            )
            self._serve_pages(stack, webhooks)
            leadership = self._contend(stack)
            self._await_leadership(leadership)
            if not self._is_over():
                with Leading(self._surroundings(stack, leadership)):
                    _log.info("Controllers work", extra={"identity": self._options.identity})
                    self._await_end()
                    if self._lost.is_set():
                        self._connection.close()  # what is under way may not finish, and nobody should wait for it
        return 1 if self._lost.is_set() else 0

    # --- every replica ------------------------------------------------------------------------------------------------

    def _handlers(self) -> dict[str, Handler]:
        handlers = {**self._experiments.handlers(), **self._pods.handlers()}
        return {path: self._timed(path, handler) for path, handler in handlers.items()}

    def _timed(self, path: str, handler: Handler) -> Handler:
        histogram = self._metrics.reviews.labels(path.strip("/"))

        def timed(review: Review) -> Verdict:
            with histogram.time():
                return handler(review)

        return timed

    def _experiment_admission(self) -> ExperimentAdmission:
        def has_volume(algorithm: str) -> bool:
            entry = self._config().suggestion(algorithm)
            return entry is not None and bool(entry.persistent_volume_spec)

        catalog = ClusterCatalog(self._config)
        return ExperimentAdmission(
            self._store,
            catalog=lambda: catalog,
            collectors=lambda: [entry.kind for entry in self._config().runtime.metrics_collectors],
            has_volume=has_volume,
        )

    def _pod_admission(self) -> PodAdmission:
        options = self._options
        surroundings = TrialSurroundings(
            self._store,
            self._config,
            db_manager_address=options.db_manager_address,
            native_sidecars=self._version.has_native_sidecars,
            inject_security_context=options.config.init.controller.inject_security_context,
        )
        return PodAdmission(self._store, surroundings.settings_for, events=self._events, clock=self._clock)

    def _certificates(self) -> CertificateSource:
        options = self._options
        if options.certificates is not None:
            return CertificateFiles(options.certificates)
        generator = options.config.init.cert_generator
        names = (
            *dns_names(generator.webhook_service_name or COMPONENT, options.core_namespace),
            *options.webhook_names,
        )
        key = Key(options.core_namespace, generator.webhook_secret_name or "katib-webhook-cert")
        bundle = CaBundle(self._store, WEBHOOK_CONFIGURATION)
        return CertificateSecret(self._store, key, Terms(names), bundle, self._clock)

    def _serve_pages(self, stack: ExitStack, webhooks: AdmissionServer) -> None:
        addresses = self._options.config.init.controller
        checks = {
            "/healthz": check_page(dict),
            "/readyz": check_page(lambda: {"webhooks": webhooks.is_ready}),
        }
        stack.enter_context(Pages(addresses.healthz_addr, checks))
        stack.enter_context(Pages(addresses.metrics_addr, {"/metrics": metrics_page(self._metrics.registry)}))

    def _count(self, request: RequestInfo, status: int) -> None:
        resource = "/".join(filter(None, (request.resource, request.subresource)))
        self._metrics.requests.labels(request.verb, request.api_group, resource, str(status)).inc()

    # --- leading ------------------------------------------------------------------------------------------------------

    def _contend(self, stack: ExitStack) -> Leadership | None:
        controller = self._options.config.init.controller
        if not controller.enable_leader_election:
            return None
        leadership = Leadership(
            self._store,
            Key(self._options.core_namespace, controller.leader_election_id),
            self._options.identity,
            self._clock,
            times=self._options.lease_times,
            on_lost=self._lost.set,
        )
        leadership.start()
        stack.callback(leadership.stop)
        return leadership

    def _await_leadership(self, leadership: Leadership | None) -> None:
        while leadership is not None and not self._is_over() and not leadership.wait_until_leading(0.2):
            pass

    def _await_end(self) -> None:
        while not self._is_over():
            self._stop.wait(0.2)

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._lost.is_set()

    def _surroundings(self, stack: ExitStack, leadership: Leadership | None) -> Surroundings:
        options = self._options
        selectors = {POD: TRIAL_LABEL, **SERVICE_SELECTORS}
        selecting = KubernetesStore(self._connection, selectors=selectors, foreground=_waits_for_pods)
        observations = DbManagerClient(
            options.own_db_manager_address or options.db_manager_address, timeout_seconds=DB_MANAGER_SECONDS
        )
        stack.callback(observations.close)

        def leads() -> bool:
            return leadership is None or leadership.is_leading

        return Surroundings(
            store=FencedStore(selecting, leads),
            all_pods=FencedStore(KubernetesStore(self._connection), leads),
            observations=FencedLog(observations, leads),
            config=self._config,
            events=self._events,
            check=lambda experiment: _errors_of(self._experiments, experiment),
            find_trial=self._pods.trial_of,
            metrics=self._metrics,
            clock=self._clock,
            db_manager_address=options.db_manager_address,
            grpc_probes=self._version.has_grpc_probes
            and options.config.init.controller.enable_grpc_probe_in_suggestion,
            settings=options.settings,
        )


def _waits_for_pods(kind: Kind) -> bool:
    return kind not in _BACKGROUND


def _errors_of(admission: ExperimentAdmission, experiment: Experiment) -> Sequence[FieldError]:
    """Return what the webhook would have said of an experiment that it has not seen."""
    review = Review(
        uid=experiment.metadata.uid,
        operation="CREATE",
        namespace=experiment.namespace,
        name=experiment.name,
        object=experiment.encode(),
        resource="experiments",
    )
    try:
        admission.validate(review)
    except InvalidError as error:
        return error.errors
    return ()
