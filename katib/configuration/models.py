"""The KatibConfig as it is written, with its defaults: `config.kubeflow.org/v1beta1`.

Where a rule needs more than types, its validator raises through `broken`, so that one reading tells of all that is
wrong. Fields marked *ours* are unknown to Katib.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from katib.api.quantities import parse_quantity
from katib.configuration.resources import completed

SUGGESTION_PORT, SUGGESTION_PORT_NAME = 6789, "suggestion-api"
DEFAULT_MOUNT_PATH = "/opt/katib/data"
PULL_POLICIES = ("Always", "IfNotPresent", "Never")

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ADDRESS = re.compile(r"[^\s:/]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")
_RESOURCE_KIND = re.compile(r"([A-Z][A-Za-z0-9]*)\.(v\d+(?:(?:alpha|beta)\d+)?)\.([a-z0-9.-]*)")


def broken(cause: str, remedy: str, origin: str, *, at: str = "") -> PydanticCustomError:
    """Return the error of a rule; `at` names the field when the rule belongs to the whole entry."""
    return PydanticCustomError("rule", "{cause}", {"cause": cause, "remedy": remedy, "origin": origin, "at": at})


def _pull_policy(value: object) -> object:
    """Take any other text for the default, as Katib does."""
    return value if value in PULL_POLICIES or not isinstance(value, str) else "IfNotPresent"


def _quantity(value: object) -> str:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            parse_quantity(value)
        except ValueError:
            pass
        else:
            return str(value)
    raise broken(f"{value!r} is no quantity", "write one such as 500m, 2 or 1.5Gi", "config-quantity")


Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]
Port = Annotated[int, Strict(), Field(gt=0, lt=65536)]
PullPolicy = Annotated[str, BeforeValidator(_pull_policy)]
Quantity = Annotated[str, BeforeValidator(_quantity)]
Opaque = dict[str, Any]


class ConfigModel(BaseModel):
    """Base of all parts: camel case in the file, frozen, unknown fields are errors."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class TrialResource(ConfigModel):
    """A kind that trials may run as."""

    kind: str
    version: str
    group: str

    @property
    def api_version(self) -> str:
        """As objects of the kind say it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.kind}.{self.version}.{self.group}"


def _trial_resource(value: object) -> object:
    match = _RESOURCE_KIND.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        remedy = "write Kind.version.group such as Job.v1.batch"
        raise broken(f"{value!r} names no kind", remedy, "config-trial-resource")
    kind, version, group = match.groups()
    return TrialResource(kind=kind, version=version, group=group)


class ControllerConfig(ConfigModel):
    """How the controller runs; read once, at its start."""

    experiment_suggestion_name: Text = "default"
    metrics_addr: Text = ":8080"
    healthz_addr: Text = ":18080"
    inject_security_context: Flag = False
    enable_grpc_probe_in_suggestion: Flag = Field(default=True, alias="enableGRPCProbeInSuggestion")
    trial_resources: tuple[Annotated[TrialResource, BeforeValidator(_trial_resource)], ...] = (
        TrialResource(kind="Job", version="v1", group="batch"),
    )
    webhook_port: Port = 8443
    enable_leader_election: Flag = False
    leader_election_id: Text = Field(default="3fbc96e9.katib.kubeflow.org", alias="leaderElectionID")

    @field_validator("trial_resources")
    @classmethod
    def _at_least_one(cls, value: tuple[TrialResource, ...]) -> tuple[TrialResource, ...]:
        if not value:
            raise broken("the list is empty", "name a kind such as Job.v1.batch", "config-trial-resource")
        return value


class CertGeneratorConfig(ConfigModel):
    """Whether the controller makes the certificates of its webhooks itself."""

    enable: Flag = False
    webhook_service_name: Text = ""
    webhook_secret_name: Text = ""

    @model_validator(mode="before")
    @classmethod
    def _enabled_by_a_name(cls, value: Any) -> Any:
        """A name enables it, and enabling it fills the names in."""
        if not isinstance(value, dict):
            return value
        names = {"webhookServiceName": "katib-controller", "webhookSecretName": "katib-webhook-cert"}
        if value.get("enable") is True or any(value.get(name) for name in names):
            given = {key: text for key, text in value.items() if text or key not in names}
            return {**names, **given, "enable": True}
        return value


class InitConfig(ConfigModel):
    """What is read once."""

    controller: ControllerConfig = ControllerConfig()
    cert_generator: CertGeneratorConfig = CertGeneratorConfig()


class Resources(ConfigModel):
    """What a container asks for and may use, as written."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    claims: tuple[Opaque, ...] = ()

    def complete(self) -> Opaque:
        """Return them with the defaults, for a container."""
        claims: Opaque = {"claims": list(self.claims)} if self.claims else {}
        return {**completed(self.requests, self.limits), **claims}


def _label(value: str) -> str:
    if not _DNS_LABEL.fullmatch(value):
        remedy = "use lower case letters, digits and -"
        raise broken(f'"{value}" cannot be part of an object\'s name', remedy, "config-name")
    return value


def _address(value: str) -> str:
    if value and not _ADDRESS.fullmatch(value):
        raise broken(f'"{value}" is no address', "write host:port", "config-address")
    return value


class _Service(ConfigModel):
    algorithm_name: Text
    image: Text = ""
    image_pull_policy: PullPolicy = "IfNotPresent"
    resources: Resources = Resources()
    address: Text = ""

    _name = field_validator("algorithm_name")(_label)
    _host_and_port = field_validator("address")(_address)

    @model_validator(mode="after")
    def _image_or_address(self) -> _Service:
        if self.image and self.address:
            raise broken("both image and address are set", "keep one of them", "config-image-or-address", at="address")
        if not self.image and not self.address:
            raise broken("missing", "name the image of the service, or set address", "config-image", at="image")
        return self


class SuggestionConfig(_Service):
    """One suggestion service.

    Attributes:
        algorithm_name: The `algorithmName` of experiments.
        image: What its container runs.
        image_pull_policy: As in a container.
        resources: As in a container, with defaults.
        address: *Ours*: `host:port` of a service that somebody else runs; then nothing is created for it.
        service_account_name: Of its pod.
        volume_mount_path: Where the volume of the policy FromVolume is.
        persistent_volume_claim_spec: Of that volume; Katib's defaults where it says nothing.
        persistent_volume_spec: A volume to create for the claim; none by default.
        persistent_volume_labels: Labels of that volume.
        model_extra: All other fields of a core/v1 Container, as they are.
    """

    model_config = ConfigDict(extra="allow")

    service_account_name: Text = ""
    volume_mount_path: Text = DEFAULT_MOUNT_PATH
    persistent_volume_claim_spec: Opaque = {}
    persistent_volume_spec: Opaque = {}
    persistent_volume_labels: dict[str, str] = {}

    @model_validator(mode="after")
    def _port_is_ours(self) -> SuggestionConfig:
        ports = (self.model_extra or {}).get("ports")
        for i, port in enumerate(ports if isinstance(ports, list) else []):
            if isinstance(port, dict) and (
                port.get("name") == SUGGESTION_PORT_NAME or port.get("containerPort") == SUGGESTION_PORT
            ):
                cause = f"the port {SUGGESTION_PORT_NAME} ({SUGGESTION_PORT}) is added to every service"
                raise broken(cause, "remove it", "config-port", at=f"ports[{i}]")
        return self

    def container(self) -> Opaque:
        """Return the container of the service as far as the file says it."""
        return {
            "name": "suggestion",
            **(self.model_extra or {}),
            "image": self.image,
            "imagePullPolicy": self.image_pull_policy,
            "resources": self.resources.complete(),
        }

    def claim_spec(self) -> Opaque:
        """Return the spec of the volume claim."""
        given = self.persistent_volume_claim_spec
        resources = given.get("resources") or {}
        requests = {"storage": "1Gi", **(resources.get("requests") or {})}
        modes = given.get("accessModes") or ["ReadWriteOnce"]
        return {**given, "accessModes": modes, "resources": {**resources, "requests": requests}}


class EarlyStoppingConfig(_Service):
    """One early stopping service; `address` and `security_context` (of its container) are *ours*."""

    security_context: Opaque = {}

    def container(self) -> Opaque:
        """Return the container of the service as far as the file says it."""
        context: Opaque = {"securityContext": self.security_context} if self.security_context else {}
        return {
            "name": "early-stopping",
            "image": self.image,
            "imagePullPolicy": self.image_pull_policy,
            "resources": self.resources.complete(),
            **context,
        }


class MetricsCollectorConfig(ConfigModel):
    """The collector of one kind.

    Attributes:
        kind: The `collector.kind` of experiments.
        image: What the sidecar runs.
        image_pull_policy: As in a container.
        resources: As in a container, with defaults.
        wait_all_processes: Whether the collector waits for all processes of the pod; None leaves that to it.
        native_sidecar: *Ours*: whether it is a native sidecar; None where the cluster has them.
    """

    kind: Text
    image: Text = Field(min_length=1)
    image_pull_policy: PullPolicy = "IfNotPresent"
    resources: Resources = Resources()
    wait_all_processes: Flag | None = None
    native_sidecar: Flag | None = None


Entry = TypeVar("Entry")


class RuntimeConfig(ConfigModel):
    """What is read at each use."""

    suggestions: tuple[SuggestionConfig, ...] = ()
    early_stoppings: tuple[EarlyStoppingConfig, ...] = ()
    metrics_collectors: tuple[MetricsCollectorConfig, ...] = ()


class KatibConfig(ConfigModel):
    """The whole file. Of several entries of one name the last wins."""

    api_version: Literal["config.kubeflow.org/v1beta1"] = "config.kubeflow.org/v1beta1"
    kind: Literal["KatibConfig"] = "KatibConfig"
    init: InitConfig = InitConfig()
    runtime: RuntimeConfig = RuntimeConfig()

    def suggestion(self, name: str) -> SuggestionConfig | None:
        """Return the service of an algorithm, None when there is none."""
        return _last(entry for entry in self.runtime.suggestions if entry.algorithm_name == name)

    def early_stopping(self, name: str) -> EarlyStoppingConfig | None:
        """Return the service of an early stopping algorithm, None when there is none."""
        return _last(entry for entry in self.runtime.early_stoppings if entry.algorithm_name == name)

    def collector(self, kind: str) -> MetricsCollectorConfig | None:
        """Return the collector of a kind, None when there is none."""
        return _last(entry for entry in self.runtime.metrics_collectors if entry.kind == kind)


def _last(entries: Iterable[Entry]) -> Entry | None:
    last = None
    for last in entries:  # noqa: B007 - the last one is what is wanted
        pass
    return last
