"""One controller process: the work of every replica, and the start of the leader's.

Every replica serves webhooks, probes and Prometheus. One of them leads (`leading.py`). A leader that loses its Lease
exits; its container is restarted and contends for the Lease again.
"""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from katib.engine.controllers.kinds import JOB, OPTIMIZATION_JOB
from katib.engine.controllers.metrics import check_page
from katib.engine.controllers.settings import ControllerSettings
from katib.engine.runtime.clock import SystemClock
from katib.engine.runtime.interpreter import tune_interpreter
from katib.engine.runtime.objects import Key, Kind
from katib.errors import FieldError, ForbiddenError, InvalidError, KindNotInstalledError, UnavailableError, invalid
from katib.model.types import Experiment
from katib.places.cluster.access.events import server_events
from katib.places.cluster.admission.certificate_sources import (
    CaBundle,
    CertificateSecret,
    CertificateTerms,
    MountedCertificate,
)
from katib.places.cluster.admission.reviews import AdmissionResponse, AdmissionReview, Handler
from katib.places.cluster.admission.server import AdmissionServer
from katib.places.cluster.client import ApiConnection, RequestInfo
from katib.places.cluster.configuration.models import KatibConfig
from katib.places.cluster.configuration.source import ConfigSource
from katib.places.cluster.environment import DEFAULT_CORE_NAMESPACE, await_answer
from katib.places.cluster.images import ImageCommands
from katib.places.cluster.installation_key import SECRET_NAME, InstallationTokens
from katib.places.cluster.leader.leading import CLUSTER_SETTINGS, Dependencies, leading
from katib.places.cluster.leader.lease import Leadership, LeaseTimes
from katib.places.cluster.leader.stores import LeaderStores
from katib.places.cluster.monitoring.health import ClusterMetrics, serve_pages
from katib.places.cluster.services.objects import LogEndpoint
from katib.places.cluster.services.plan import ClusterCatalog
from katib.places.cluster.store import KubernetesEvents, KubernetesStore
from katib.places.cluster.version import supported_version
from katib.places.cluster.webhooks.experiments import ExperimentAdmission
from katib.places.cluster.webhooks.pods import PodAdmission, TrialSettings
from katib.wire.rpc.credentials import DbManagerCredentials
from katib.wire.rpc.db_manager_client import DbManagerClient
from katib.wire.rpc.tokens import CallerRole, TokenClaims
from katib.wire.serving.certificates import CertificateSource, dns_names

COMPONENT = "katib-controller"
WEBHOOK_CONFIGURATION = "katib.kubeflow.org"

DB_MANAGER_SECONDS = 60.0
"""Timeout of a call of the DB manager. No worker waits for it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Options of a controller.

    Attributes:
        config: The KatibConfig, for its part `init`.
        db_manager_address: Address of the DB manager for pods, and for the controller by default.
        status_address: Address for the status of Kubeflow Trainer; if empty, pods get none.
        db_manager_authority: File with the certificate authorities (PEM) of the DB manager; None for plain text.
        certificates: Directory of the webhooks' certificate if another program issues it; then the controller issues
            none, regardless of the configuration.
        webhook_names: Further names and addresses of the webhooks.
        identity: Unique name among the contenders for the Lease.
        shutdown_delay_seconds: How long webhooks are still served after the stop: clients may not have learned that
            this replica stops. It is not ready meanwhile, and another one leads.

    Raises:
        InvalidError: The configuration leaves the certificate to another program, but its directory is missing.
    """

    config: KatibConfig = field(default_factory=KatibConfig)
    core_namespace: str = DEFAULT_CORE_NAMESPACE
    db_manager_address: str = ""
    own_db_manager_address: str = ""
    status_address: str = ""
    db_manager_authority: Path | None = None
    certificates: Path | None = None
    webhook_names: Sequence[str] = ()
    identity: str = field(default_factory=lambda: f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}")
    lease_times: LeaseTimes = field(default_factory=LeaseTimes)
    shutdown_delay_seconds: float = 0.0
    settings: ControllerSettings = CLUSTER_SETTINGS

    def __post_init__(self) -> None:
        if self.certificates is None and self.config.init.cert_generator.enable is False:
            cause = "it is false, and the certificate of the webhooks is not configured"
            remedy = "give its directory with --cert-dir, or set it to true"
            raise invalid("init.certGenerator.enable", cause, remedy, "certificate-missing")


class ClusterController:
    """One replica of the controller."""

    def __init__(self, connection: ApiConnection, options: ControllerOptions) -> None:
        self._connection = connection
        self._options = options
        self._clock = SystemClock()
        self._metrics = ClusterMetrics()
        self._store = KubernetesStore(connection, foreground=_waits_for_pods)
        self._config = ConfigSource(self._store, options.core_namespace, self._clock)
        self._version: str | None = None
        self._events = KubernetesEvents(connection, COMPONENT, self._clock)
        self._tokens = InstallationTokens(self._store, Key(options.core_namespace, SECRET_NAME))
        self._images = ImageCommands(self._store)
        self._experiments = self._experiment_admission()
        self._pods = self._pod_admission()
        self._stop = threading.Event()
        self._lost = threading.Event()
        connection.observe(self._count)

    def stop(self) -> None:
        """End `run`. Callable from any thread or signal handler."""
        self._stop.set()

    def run(self) -> int:
        """Run until stopped; return 0, or 1 if the Lease was lost.

        Raises:
            KatibError: The API server became unavailable while the caches were filled.
            TerminalError: The cluster is older than the oldest supported version.
            OSError: A port is in use.
        """
        tune_interpreter()
        with ExitStack() as stack:
            port = self._options.config.init.controller.webhook_port
            certificates = self._certificates()
            handlers = {**self._experiments.handlers(), **self._pods.handlers()}
            timed = {path: self._timed(path, handler) for path, handler in handlers.items()}
            webhooks = AdmissionServer(timed, certificates, port=port, clock=self._clock)
            self._serve_pages(stack, webhooks, certificates)
            # A restarted API server briefly refuses requests that it allows later.
            outages = (UnavailableError, ForbiddenError)
            self._version = await_answer(lambda: supported_version(self._connection), self._stop.wait, outages)
            if self._version is None:
                return 0
            self._events.start()
            stack.callback(self._events.stop)
            stack.enter_context(webhooks)
            stack.callback(self._serve_on)
            leadership = self._contend(stack)
            while leadership is not None and not self._is_over() and not leadership.wait_until_leading(0.2):
                pass
            if not self._is_over():
                with leading(self._dependencies(stack, leadership)):
                    _log.info("Controllers work", extra={"identity": self._options.identity})
                    while not self._is_over():
                        self._stop.wait(0.2)
                    if self._lost.is_set():
                        self._connection.close()  # pending requests may not finish, and must not be waited for
        return 1 if self._lost.is_set() else 0

    # --- every replica ------------------------------------------------------------------------------------------------

    def _timed(self, path: str, handler: Handler) -> Handler:
        histogram = self._metrics.reviews.labels(path.strip("/"))

        def timed(review: AdmissionReview) -> AdmissionResponse:
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
            images=self._images,
        )

    def _pod_admission(self) -> PodAdmission:
        options = self._options
        trial_settings = TrialSettings(
            self._store,
            self._config,
            db_manager_address=options.db_manager_address,
            status_address=options.status_address,
            inject_security_context=options.config.init.controller.inject_security_context,
            credentials=lambda trial: self._credentials(TokenClaims(CallerRole.TRIAL, trial.namespace, trial.name)),
        )
        return PodAdmission(
            self._store, trial_settings.settings_for, events=self._events, images=self._images, clock=self._clock
        )

    def _credentials(self, claims: TokenClaims) -> DbManagerCredentials:
        return DbManagerCredentials(self._tokens().token_of(claims), self._authority())

    def _authority(self) -> str:
        path = self._options.db_manager_authority
        try:
            return "" if path is None else path.read_text()
        except OSError as error:
            raise UnavailableError(
                f"{path}: {error.strerror}; mount the Secret with the DB manager's ca.crt"
            ) from error

    def _certificates(self) -> CertificateSource:
        options = self._options
        if options.certificates is not None:
            return MountedCertificate(options.certificates)
        generator = options.config.init.cert_generator
        names = (
            *dns_names(generator.webhook_service_name or COMPONENT, options.core_namespace),
            *options.webhook_names,
        )
        key = Key(options.core_namespace, generator.webhook_secret_name or "katib-webhook-cert")
        bundle = CaBundle(self._store, WEBHOOK_CONFIGURATION)
        return CertificateSecret(self._store, key, CertificateTerms(names), bundle, self._clock)

    def _serve_pages(self, stack: ExitStack, webhooks: AdmissionServer, certificates: CertificateSource) -> None:
        addresses = self._options.config.init.controller

        def readiness() -> dict[str, bool]:
            return {
                "stays": not self._is_over(),
                "api-server": self._version is not None,
                "webhooks": webhooks.is_ready,
                "certificate-published": certificates.is_published,
            }

        self._metrics.show_readiness(readiness)
        checks = {"/healthz": check_page(dict), "/readyz": check_page(readiness)}
        stack.enter_context(serve_pages(addresses.healthz_addr, checks))
        stack.enter_context(serve_pages(addresses.metrics_addr, {"/metrics": self._metrics.page}))

    def _count(self, request: RequestInfo, status: int) -> None:
        resource = "/".join(filter(None, (request.resource, request.subresource)))
        self._metrics.api_server_answers.set(bool(status))
        self._metrics.requests.labels(request.verb, request.api_group, resource, str(status)).inc()

    def _serve_on(self) -> None:
        """Serve webhooks for a while after the stop."""
        if self._stop.is_set() and not self._lost.is_set():
            self._lost.wait(self._options.shutdown_delay_seconds)

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

    def _is_over(self) -> bool:
        return self._stop.is_set() or self._lost.is_set()

    def _errors_of(self, experiment: Experiment) -> Sequence[FieldError]:
        """Return the errors of an experiment. Another replica may have admitted it with a newer configuration."""
        errors = _errors_of(self._experiments, experiment)
        if not errors:
            return ()
        self._config.look_again()
        return _errors_of(self._experiments, experiment)

    def _dependencies(self, stack: ExitStack, leadership: Leadership | None) -> Dependencies:
        options, controller = self._options, self._options.config.init.controller
        db_manager = DbManagerClient(
            options.own_db_manager_address or options.db_manager_address,
            timeout_seconds=DB_MANAGER_SECONDS,
            credentials=DbManagerCredentials(authority=self._authority()),
            token_of=lambda namespace: self._tokens().token_of(TokenClaims(CallerRole.CONTROLLER, namespace)),
        )
        stack.callback(db_manager.close)

        def leads() -> bool:
            return leadership is None or leadership.is_leading

        return Dependencies(
            stores=LeaderStores.of(self._connection, options.core_namespace, leads, _waits_for_pods),
            db_manager=db_manager,
            log_place=LogEndpoint(
                options.db_manager_address,
                lambda namespace: self._credentials(TokenClaims(CallerRole.READER, namespace)).variables,
            ),
            list_events=server_events(self._connection),
            config=self._config,
            events=self._events,
            check=self._errors_of,
            find_trial=self._pods.trial_of,
            metrics=self._metrics,
            clock=self._clock,
            serves=self._serves,
            grpc_probes=controller.enable_grpc_probe_in_suggestion,
            has_optimization_jobs=self._serves(OPTIMIZATION_JOB),
            settings=replace(
                options.settings,
                refusal_patience_seconds=controller.refused_pod_patience_seconds,
                passing_refusal_patience_seconds=controller.passing_refusal_patience_seconds,
            ),
        )

    def _serves(self, kind: Kind) -> bool:
        try:
            self._connection.discovery.resource(kind.api_version, kind.kind)
        except KindNotInstalledError:
            return False
        return True


def _waits_for_pods(kind: Kind) -> bool:
    """Return whether a deleted object stays until its pods are gone, so that no program outlives its trial."""
    return kind == JOB


def _errors_of(admission: ExperimentAdmission, experiment: Experiment) -> Sequence[FieldError]:
    """Return the webhook's errors for an experiment that it has not checked."""
    review = AdmissionReview(
        uid=experiment.metadata.uid,
        operation="CREATE",
        namespace=experiment.namespace,
        name=experiment.name,
        object=experiment.encode(),
        resource="experiments",
    )
    try:
        replace(admission, images=None).validate(review)  # an unreachable registry only delays the pods
    except InvalidError as error:
        return error.errors
    return ()
