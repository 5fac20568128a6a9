"""Services of an experiment: containers to run, or addresses of externally managed services. Pure.

Their objects are found by the kinds, names and labels defined here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from katib.engine.algorithm_services.plan import SUGGESTION_HEALTH, ServiceId
from katib.engine.runtime.objects import Kind
from katib.errors import UnavailableError
from katib.model.algorithms import AlgorithmInfo
from katib.model.checkpoints import checkpoint_directory
from katib.model.types import AlgorithmSpec, ResumePolicy, Suggestion
from katib.places.cluster.configuration.models import EarlyStoppingConfig, KatibConfig, SuggestionConfig
from suggestion_services.algorithms import ENTRIES

DEPLOYMENT = Kind("apps/v1", "Deployment")
SERVICE = Kind("v1", "Service")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount")
ROLE = Kind("rbac.authorization.k8s.io/v1", "Role")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding")
VOLUME_CLAIM = Kind("v1", "PersistentVolumeClaim")
VOLUME = Kind("v1", "PersistentVolume")

DEPLOYMENT_LABEL = "katib.kubeflow.org/deployment"
SUGGESTION_LABEL = "katib.kubeflow.org/suggestion"

SERVICE_SELECTORS = {DEPLOYMENT: SUGGESTION_LABEL, SERVICE: SUGGESTION_LABEL}
"""Label selectors of the watched kinds, so that a store can leave foreign objects out of watches and lists."""

SUGGESTION_PORT = 6789
EARLY_STOPPING_PORT = 6788


@dataclass(frozen=True, slots=True)
class ServiceEndpoint:
    """One gRPC service.

    Attributes:
        health_service: Service name for `grpc.health.v1.Health`.
        address: Address if it is managed externally; empty if it runs on the Service.
    """

    id: ServiceId
    health_service: str
    port: int
    address: str = ""
    call_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """The services of a suggestion.

    Attributes:
        endpoints: The suggestion service, then the early stopping service if there is one.
        suggestion: Configuration of the suggestion service's container; None if it runs elsewhere.
        has_volume: Whether a volume outlives the containers.
        keeps_checkpoints: Whether the suggestion service stores the checkpoints of trials on that volume.
    """

    name: str
    endpoints: tuple[ServiceEndpoint, ...]
    suggestion: SuggestionConfig | None
    early_stopping: EarlyStoppingConfig | None
    has_volume: bool
    keeps_checkpoints: bool = False

    @property
    def has_objects(self) -> bool:
        return self.suggestion is not None or self.early_stopping is not None

    @property
    def ports(self) -> tuple[ServiceEndpoint, ...]:
        return tuple(endpoint for endpoint in self.endpoints if not endpoint.address)


def object_name(suggestion: str, algorithm: str) -> str:
    return f"{suggestion}-{algorithm}"


def plan_for(suggestion: Suggestion, config: KatibConfig) -> ClusterPlan:
    """Return the services of a suggestion.

    Raises:
        UnavailableError: An algorithm is not, or no longer, in the KatibConfig; it may be added again.
    """
    algorithm = _name(suggestion.spec.algorithm)
    service = ServiceId(algorithm)
    entry = config.suggestion(algorithm)
    if entry is None:
        raise _not_offered(service, "suggestions")
    endpoints = [ServiceEndpoint(service, SUGGESTION_HEALTH, SUGGESTION_PORT, entry.address, entry.call_seconds)]
    stopping = None
    if suggestion.spec.early_stopping is not None:
        stopping_service = ServiceId(_name(suggestion.spec.early_stopping), early_stopping=True)
        stopping = config.early_stopping(stopping_service.algorithm)
        if stopping is None:
            raise _not_offered(stopping_service, "earlyStoppings")
        endpoints.append(
            ServiceEndpoint(stopping_service, "", EARLY_STOPPING_PORT, stopping.address, stopping.call_seconds)
        )
    keeps_checkpoints = bool(checkpoint_directory(suggestion.spec.algorithm)) and not entry.address
    from_volume = suggestion.spec.resume_policy == ResumePolicy.FROM_VOLUME and not entry.address
    return ClusterPlan(
        object_name(suggestion.name, algorithm),
        tuple(endpoints),
        suggestion=None if entry.address else entry,
        early_stopping=None if stopping is None or stopping.address else stopping,
        has_volume=from_volume or keeps_checkpoints,
        keeps_checkpoints=keeps_checkpoints,
    )


def early_stopping_address(suggestion: Suggestion, config: KatibConfig) -> str:
    """Return the address for early stops by sidecars of the trials; empty if the suggestion stops nothing early."""
    if suggestion.spec.early_stopping is None:
        return ""
    entry = config.early_stopping(_name(suggestion.spec.early_stopping))
    if entry is not None and entry.address:
        return entry.address
    name = object_name(suggestion.name, _name(suggestion.spec.algorithm))
    return f"{name}.{suggestion.namespace}:{EARLY_STOPPING_PORT}"


def _name(algorithm: AlgorithmSpec | None) -> str:
    return "" if algorithm is None else algorithm.algorithm_name


def _not_offered(service: ServiceId, section: str) -> UnavailableError:
    return UnavailableError(
        f"{service} is not offered here: the KatibConfig has no entry for it; add one under runtime.{section}"
    )


_OURS = {(entry.info.name, entry.info.early_stopping): entry.info for entry in ENTRIES}


@dataclass(frozen=True, slots=True)
class ClusterCatalog:
    """Algorithms of the KatibConfig. Implements `katib.model.algorithms.AlgorithmCatalog`.

    The properties of a built-in algorithm apply to any image that serves it, since all accept Katib's settings. Of
    others nothing is known: their service alone checks settings, and receives the trials.
    """

    config: Callable[[], KatibConfig]

    def find(self, name: str, *, early_stopping: bool = False) -> AlgorithmInfo | None:
        config = self.config()
        entry = config.early_stopping(name) if early_stopping else config.suggestion(name)
        return None if entry is None else _info(name, early_stopping=early_stopping)

    def all(self) -> Sequence[AlgorithmInfo]:
        """Return all algorithms, suggestion algorithms first."""
        runtime = self.config().runtime
        searching = dict.fromkeys(entry.algorithm_name for entry in runtime.suggestions)
        stopping = dict.fromkeys(entry.algorithm_name for entry in runtime.early_stoppings)
        return [
            *(_info(name, early_stopping=False) for name in searching),
            *(_info(name, early_stopping=True) for name in stopping),
        ]


def _info(name: str, *, early_stopping: bool) -> AlgorithmInfo:
    known = _OURS.get((name, early_stopping))
    return known or AlgorithmInfo(name, early_stopping=early_stopping)
