"""Models of the KatibConfig with its defaults: `config.kubeflow.org/v1beta1`.

Fields marked *ours* do not exist in Katib.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationInfo,
    field_validator,
    model_validator,
)

from katib.model.configuration import HOST_AND_PORT, ConfigModel, Flag, RetentionConfig, Text, broken
from katib.model.quantities import parse_quantity

SUGGESTION_PORT, SUGGESTION_PORT_NAME = 6789, "suggestion-api"
DEFAULT_MOUNT_PATH = "/opt/katib/data"
PULL_POLICIES = ("Always", "IfNotPresent", "Never")

_WITHOUT_IMAGE = frozenset({"Push", "Custom", "None"})
"""Kinds of collectors whose container, if any, is described in the experiment."""

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _pull_policy(value: object) -> object:
    """Replace an unknown policy by the default, as Katib does."""
    return value if value in PULL_POLICIES or not isinstance(value, str) else "IfNotPresent"


def _quantity(value: object) -> str:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            parse_quantity(value)
        except ValueError:
            pass
        else:
            return str(value)
    raise broken(f"{value!r} is not a quantity", "write one such as 500m, 2 or 1.5Gi", "config-quantity")


Seconds = Annotated[int, Strict(), Field(ge=0)]
Patience = Annotated[int, Strict(), Field(gt=0)]
Port = Annotated[int, Strict(), Field(gt=0, lt=65536)]
PullPolicy = Annotated[str, BeforeValidator(_pull_policy)]
Quantity = Annotated[str, BeforeValidator(_quantity)]
Opaque = dict[str, Any]


class ControllerConfig(ConfigModel):
    """Options of the controller, read once at its start.

    Accepted without effect because Katib's files have them: `experiment_suggestion_name`, and `trial_resources`, since
    the jobs of a kind are watched from the first trial of that kind.

    Attributes:
        refused_pod_patience_seconds: *Ours*: how long the pods of a trial may be refused before it fails.
        passing_refusal_patience_seconds: *Ours*: the same for an exhausted quota or an unreachable webhook.
    """

    experiment_suggestion_name: Text = "default"
    metrics_addr: Text = ":8080"
    healthz_addr: Text = ":18080"
    inject_security_context: Flag = False
    enable_grpc_probe_in_suggestion: Flag = Field(default=True, alias="enableGRPCProbeInSuggestion")
    trial_resources: tuple[Text, ...] = ()
    webhook_port: Port = 8443
    enable_leader_election: Flag = False
    leader_election_id: Text = Field(default="3fbc96e9.katib.kubeflow.org", alias="leaderElectionID")
    refused_pod_patience_seconds: Seconds = 60
    passing_refusal_patience_seconds: Seconds = 300


class CertGeneratorConfig(ConfigModel):
    """Options for the controller's self-made webhook certificates.

    Attributes:
        enable: None if not set: enabled unless a directory with a certificate is given.
        webhook_service_name: Service of the webhooks.
        webhook_secret_name: Secret that stores the certificate.
    """

    enable: Flag | None = None
    webhook_service_name: Text = ""
    webhook_secret_name: Text = ""

    @model_validator(mode="before")
    @classmethod
    def _enabled_by_a_name(cls, value: Any) -> Any:
        """A name enables it, and enabling it fills in the names."""
        if not isinstance(value, dict):
            return value
        names = {"webhookServiceName": "katib-controller", "webhookSecretName": "katib-webhook-cert"}
        if value.get("enable") is True or any(value.get(name) for name in names):
            given = {key: text for key, text in value.items() if text or key not in names}
            return {**names, **given, "enable": True}
        return value


class InitConfig(ConfigModel):
    """Configuration read once at the start."""

    controller: ControllerConfig = ControllerConfig()
    cert_generator: CertGeneratorConfig = CertGeneratorConfig()


DEFAULT_REQUESTS: Mapping[str, str] = {"cpu": "50m", "memory": "10Mi", "ephemeral-storage": "500Mi"}
DEFAULT_LIMITS: Mapping[str, str] = {"cpu": "500m", "memory": "100Mi", "ephemeral-storage": "5Gi"}


class ContainerResources(ConfigModel):
    """Requests and limits of a container, as written."""

    requests: dict[str, Quantity] = Field(default_factory=dict)
    limits: dict[str, Quantity] = Field(default_factory=dict)
    claims: tuple[Opaque, ...] = ()

    def complete(self) -> Opaque:
        """Return them with the defaults, for a container.

        A missing entry gets its default, a negative one is removed. Unlike in Katib, a default yields to a given value:
        every API server refuses a request above its limit.
        """
        requests, limits = {**DEFAULT_REQUESTS, **self.requests}, {**DEFAULT_LIMITS, **self.limits}
        for name in requests.keys() & limits.keys():
            request, limit = parse_quantity(requests[name]), parse_quantity(limits[name])
            if 0 <= limit < request:
                if name not in self.requests:
                    requests[name] = limits[name]
                elif name not in self.limits:
                    limits[name] = requests[name]
        claims: Opaque = {"claims": list(self.claims)} if self.claims else {}
        parts = {"requests": requests, "limits": limits}
        kept = {
            part: {name: text for name, text in given.items() if parse_quantity(text) >= 0}
            for part, given in parts.items()
        }
        return {**kept, **claims}


def _label(value: str) -> str:
    if not _DNS_LABEL.fullmatch(value):
        remedy = "use lower case letters, digits and -"
        raise broken(f'"{value}" cannot be part of an object\'s name', remedy, "config-name")
    return value


def _address(value: str) -> str:
    if value and not HOST_AND_PORT.fullmatch(value):
        raise broken(f'"{value}" is not an address', "write host:port", "config-address")
    return value


class _Service(ConfigModel):
    algorithm_name: Text
    image: Text = ""
    image_pull_policy: PullPolicy = "IfNotPresent"
    resources: ContainerResources = ContainerResources()
    address: Text = ""
    call_seconds: Patience = 60

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
        image: Image of its container.
        image_pull_policy: As in a container.
        resources: As in a container, with defaults.
        address: *Ours*: `host:port` of a service that is not managed here; nothing is created for it.
        call_seconds: *Ours*: timeout of a call; Katib's by default.
        service_account_name: Service account of its pod.
        volume_mount_path: Mount path of the volume for the policy FromVolume.
        persistent_volume_claim_spec: Spec of that volume's claim; Katib's defaults apply to missing fields.
        persistent_volume_spec: A volume to create for the claim; none by default.
        persistent_volume_labels: Labels of that volume.
        pod_security_context: *Ours*: security context of its pod, mainly for the group of a volume.
        model_extra: All other fields of a core/v1 Container, unchanged.
    """

    model_config = ConfigDict(extra="allow")

    service_account_name: Text = ""
    volume_mount_path: Text = DEFAULT_MOUNT_PATH
    persistent_volume_claim_spec: Opaque = Field(default_factory=dict)
    persistent_volume_spec: Opaque = Field(default_factory=dict)
    persistent_volume_labels: dict[str, str] = Field(default_factory=dict)
    pod_security_context: Opaque = Field(default_factory=dict)

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
        """Return the container of the service, as far as configured."""
        return {
            "name": "suggestion",
            **(self.model_extra or {}),
            "image": self.image,
            "imagePullPolicy": self.image_pull_policy,
            "resources": self.resources.complete(),
        }

    def claim_spec(self) -> Opaque:
        given = self.persistent_volume_claim_spec
        resources = given.get("resources") or {}
        requests = {"storage": "1Gi", **(resources.get("requests") or {})}
        modes = given.get("accessModes") or ["ReadWriteOnce"]
        return {**given, "accessModes": modes, "resources": {**resources, "requests": requests}}


class EarlyStoppingConfig(_Service):
    """One early stopping service; `address`, `call_seconds`, `security_context` and `sends_token` are *ours*.

    Attributes:
        security_context: Security context of its container.
        sends_token: Whether it sends its token to the DB manager; Katib's images do not.
    """

    security_context: Opaque = Field(default_factory=dict)
    sends_token: Flag = True

    def container(self) -> Opaque:
        """Return the container of the service, as far as configured."""
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
        image: Image of the sidecar.
        image_pull_policy: As in a container.
        resources: As in a container, with defaults.
        wait_all_processes: Whether the collector waits for all processes of the pod; None for its own default.
        native_sidecar: *Ours*: whether it is a native sidecar. Not for Katib's collectors: the program's container
            waits for a file that only ours write.
        patience_seconds: *Ours*: how long it keeps readings for an unreachable DB manager after the program ended.
        sends_token: *Ours*: whether the reporting program sends the token of the trial; Katib's collectors do not, nor
            do programs that call Kubeflow's `report_metrics`.
    """

    kind: Text
    image: Text = Field(default="", validate_default=True)
    image_pull_policy: PullPolicy = "IfNotPresent"
    resources: ContainerResources = ContainerResources()
    wait_all_processes: Flag | None = None
    native_sidecar: Flag = False
    patience_seconds: Annotated[int, Strict(), Field(gt=0)] = 3600
    sends_token: Flag = True

    @field_validator("image")
    @classmethod
    def _image_of_a_sidecar(cls, value: str, info: ValidationInfo) -> str:
        if not value and info.data.get("kind") not in _WITHOUT_IMAGE:
            raise broken("missing", "set it", "config-missing")
        return value


class RuntimeConfig(ConfigModel):
    """Configuration read at each use.

    Attributes:
        metrics_retention: *Ours*: how long the logs of completed trials are kept.
    """

    suggestions: tuple[SuggestionConfig, ...] = ()
    early_stoppings: tuple[EarlyStoppingConfig, ...] = ()
    metrics_collectors: tuple[MetricsCollectorConfig, ...] = ()
    metrics_retention: RetentionConfig = RetentionConfig()


class KatibConfig(ConfigModel):
    """The whole file. Of several entries with one name the last wins."""

    api_version: Literal["config.kubeflow.org/v1beta1"] = "config.kubeflow.org/v1beta1"
    kind: Literal["KatibConfig"] = "KatibConfig"
    init: InitConfig = InitConfig()
    runtime: RuntimeConfig = RuntimeConfig()

    def suggestion(self, name: str) -> SuggestionConfig | None:
        return next((entry for entry in self.runtime.suggestions[::-1] if entry.algorithm_name == name), None)

    def early_stopping(self, name: str) -> EarlyStoppingConfig | None:
        return next((entry for entry in self.runtime.early_stoppings[::-1] if entry.algorithm_name == name), None)

    def collector_sends_token(self, kind: str) -> bool:
        """Return whether a reporting program with this kind of collector sends the trial's token."""
        entry = self.collector(kind)
        return entry is None or entry.sends_token

    def early_stopping_sends_token(self, name: str) -> bool:
        entry = self.early_stopping(name)
        return entry is None or entry.sends_token

    def collector(self, kind: str) -> MetricsCollectorConfig | None:
        return next((entry for entry in self.runtime.metrics_collectors[::-1] if entry.kind == kind), None)
