"""Manifests of the objects that serve a suggestion. Pure.

Names, labels, ports and owners are those of Katib. Deployment and Service also carry the label of the suggestion
themselves, so that a watch can leave foreign objects out.

Probes: a failed one is a warning in the events, and every probe of a starting program fails. So the startup probe
begins after the duration of a usual start, and the others once it has succeeded. A service is used when it passes
Katib's own health check; its probes keep a Deployment from being Available too early, and restart a hanging service.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from katib.engine.algorithm_services.plan import SUGGESTION_HEALTH
from katib.engine.controllers.kinds import owner_entry
from katib.engine.runtime.objects import Kind
from katib.model.checkpoints import CHECKPOINT_ROOT_VARIABLE, NAMESPACE_VARIABLE
from katib.model.names import EXPERIMENT_LABEL, without_queue
from katib.model.types import Suggestion
from katib.places.cluster.configuration.models import SuggestionConfig
from katib.places.cluster.services.plan import (
    DEPLOYMENT,
    DEPLOYMENT_LABEL,
    EARLY_STOPPING_PORT,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    SUGGESTION_LABEL,
    SUGGESTION_PORT,
    VOLUME,
    VOLUME_CLAIM,
    ClusterPlan,
)

Json = dict[str, Any]

NOTHING: Mapping[str, str] = MappingProxyType({})

_VOLUME_NAME = "suggestion-volume"
_SUGGESTION_PORT_NAME = "suggestion-api"
_EARLY_STOPPING_PORT_NAME = "earlystop-api"
_FOREIGN_ANNOTATIONS = "kubectl.kubernetes.io/"  # they describe the applied object, and can be large
_STARTUP = {"initialDelaySeconds": 2, "periodSeconds": 1, "failureThreshold": 300}
"""A service with a large library may need minutes on a cold node."""
_READINESS_SECONDS = 2
_LIVENESS = {"initialDelaySeconds": 10, "periodSeconds": 120, "failureThreshold": 12}


def manifests(
    suggestion: Suggestion, plan: ClusterPlan, *, grpc_probes: bool, reader_variables: Mapping[str, str] = NOTHING
) -> tuple[Json, ...]:
    """Return all objects in the order of their creation.

    Args:
        suggestion: Owner of them all except a cluster-wide volume.
        grpc_probes: Whether containers get gRPC probes.
        reader_variables: Credentials of the early stopping service for the DB manager, as environment variables.
    """
    objects: list[Json] = []
    if plan.has_volume and plan.suggestion is not None:
        if plan.suggestion.persistent_volume_spec:
            objects.append(_volume(suggestion, plan, plan.suggestion))
        objects.append(_claim(suggestion, plan, plan.suggestion))
    if needs_rights(plan):
        objects += [
            _object(suggestion, SERVICE_ACCOUNT, plan.name),
            _role(suggestion, plan),
            _role_binding(suggestion, plan),
        ]
    pod = _pod(suggestion, plan, grpc_probes=grpc_probes, reader_variables=reader_variables)
    return (*objects, _service(suggestion, plan), _deployment(suggestion, plan, pod))


def needs_rights(plan: ClusterPlan) -> bool:
    """Return whether the pod needs an account of its own: the early stopping service changes the status of trials."""
    return plan.early_stopping is not None and not (plan.suggestion and plan.suggestion.service_account_name)


def volume_name(suggestion: Suggestion, plan: ClusterPlan) -> str:
    return f"{plan.name}-{suggestion.namespace}"


def pod_labels(suggestion: Suggestion, name: str) -> dict[str, str]:
    """Return the labels by which the Deployment and the Service select their pods."""
    return {
        **without_queue(suggestion.metadata.labels),
        DEPLOYMENT_LABEL: name,
        EXPERIMENT_LABEL: suggestion.name,
        SUGGESTION_LABEL: suggestion.name,
        "sidecar.istio.io/inject": "false",
    }


def _deployment(suggestion: Suggestion, plan: ClusterPlan, pod: Json) -> Json:
    labels = pod_labels(suggestion, plan.name)
    annotations = {
        key: text
        for key, text in without_queue(suggestion.metadata.annotations).items()
        if not key.startswith(_FOREIGN_ANNOTATIONS)
    }
    deployment = _object(suggestion, DEPLOYMENT, plan.name)
    deployment["metadata"] |= {
        "labels": {**without_queue(suggestion.metadata.labels), SUGGESTION_LABEL: suggestion.name},
        "annotations": annotations,
    }
    template = {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod}
    return {**deployment, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def _pod(suggestion: Suggestion, plan: ClusterPlan, *, grpc_probes: bool, reader_variables: Mapping[str, str]) -> Json:
    containers = []
    if plan.suggestion is not None:
        container = _suggestion_container(plan.suggestion, has_volume=plan.has_volume, grpc_probes=grpc_probes)
        if plan.keeps_checkpoints:
            _add_checkpoint_variables(container, suggestion, plan.suggestion)
        containers.append(container)
    if plan.early_stopping is not None:
        port = {"name": _EARLY_STOPPING_PORT_NAME, "containerPort": EARLY_STOPPING_PORT}
        env: Json = {"env": [{"name": name, "value": value} for name, value in reader_variables.items()]}
        containers.append(
            _with_last_lines({**plan.early_stopping.container(), "ports": [port], **(env if reader_variables else {})})
        )
    pod: Json = {"containers": containers}
    if plan.suggestion is not None and plan.suggestion.pod_security_context:
        pod["securityContext"] = plan.suggestion.pod_security_context
    account = plan.suggestion.service_account_name if plan.suggestion else ""
    if account or needs_rights(plan):
        pod["serviceAccountName"] = account or plan.name
    else:
        pod["automountServiceAccountToken"] = False  # none of its programs uses the API server
    if plan.has_volume:
        pod["volumes"] = [{"name": _VOLUME_NAME, "persistentVolumeClaim": {"claimName": plan.name}}]
    return pod


def _suggestion_container(config: SuggestionConfig, *, has_volume: bool, grpc_probes: bool) -> Json:
    container = _with_last_lines(config.container())
    port = {"name": _SUGGESTION_PORT_NAME, "containerPort": SUGGESTION_PORT}
    container["ports"] = [*container.get("ports", ()), port]
    if grpc_probes:
        target = {"grpc": {"port": SUGGESTION_PORT, "service": SUGGESTION_HEALTH}}
        container.setdefault("startupProbe", {**target, **_STARTUP})
        container.setdefault("readinessProbe", {**target, "periodSeconds": _READINESS_SECONDS})
        container.setdefault("livenessProbe", {**target, **_LIVENESS})
    mounts = list(container.get("volumeMounts", ()))
    if has_volume and all(mount.get("name") != _VOLUME_NAME for mount in mounts):
        mounts.append({"name": _VOLUME_NAME, "mountPath": config.volume_mount_path})
    return {**container, "volumeMounts": mounts} if mounts else container


def _add_checkpoint_variables(container: Json, suggestion: Suggestion, config: SuggestionConfig) -> None:
    """Set the variables of a service: the path of the volume, and the namespace that distinguishes its trials."""
    own = {CHECKPOINT_ROOT_VARIABLE: config.volume_mount_path, NAMESPACE_VARIABLE: suggestion.namespace}
    given = container.get("env") or []
    names = {variable.get("name") for variable in given}
    container["env"] = [*given, *({"name": n, "value": v} for n, v in own.items() if n not in names)]


def _with_last_lines(container: Json) -> Json:
    """Keep the last lines of a failed container in the pod's status."""
    return {"terminationMessagePolicy": "FallbackToLogsOnError", **container}


def _service(suggestion: Suggestion, plan: ClusterPlan) -> Json:
    service = _object(suggestion, SERVICE, plan.name)
    service["metadata"]["labels"] = {SUGGESTION_LABEL: suggestion.name}
    names = {False: _SUGGESTION_PORT_NAME, True: _EARLY_STOPPING_PORT_NAME}
    ports = [
        {"name": names[e.id.early_stopping], "port": e.port, "targetPort": e.port, "protocol": "TCP"}
        for e in plan.ports
    ]
    spec = {"type": "ClusterIP", "selector": pod_labels(suggestion, plan.name), "ports": ports}
    return {**service, "spec": spec}


def _role(suggestion: Suggestion, plan: ClusterPlan) -> Json:
    """Return the rights of the early stopping service: read trials and change their status. Katib grants all verbs."""
    rights = {"trials": ["get", "list", "watch"], "trials/status": ["get", "patch", "update"]}
    rules = [{"apiGroups": ["kubeflow.org"], "resources": [name], "verbs": verbs} for name, verbs in rights.items()]
    return {**_object(suggestion, ROLE, plan.name), "rules": rules}


def _role_binding(suggestion: Suggestion, plan: ClusterPlan) -> Json:
    subject = {"kind": "ServiceAccount", "name": plan.name, "namespace": suggestion.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": plan.name}
    return {**_object(suggestion, ROLE_BINDING, plan.name), "subjects": [subject], "roleRef": role}


def _claim(suggestion: Suggestion, plan: ClusterPlan, config: SuggestionConfig) -> Json:
    spec = config.claim_spec()
    if config.persistent_volume_spec:
        volume = {"volumeName": volume_name(suggestion, plan)}
        # Without a class the cluster's default would provision another volume.
        spec = {"storageClassName": config.persistent_volume_spec.get("storageClassName", ""), **volume, **spec}
    return {**_object(suggestion, VOLUME_CLAIM, plan.name), "spec": spec}


def _volume(suggestion: Suggestion, plan: ClusterPlan, config: SuggestionConfig) -> Json:
    metadata: Json = {"name": volume_name(suggestion, plan), "labels": dict(config.persistent_volume_labels)}
    spec = {**config.persistent_volume_spec, "persistentVolumeReclaimPolicy": "Delete"}
    return {"apiVersion": VOLUME.api_version, "kind": VOLUME.kind, "metadata": metadata, "spec": spec}


def _object(suggestion: Suggestion, kind: Kind, name: str) -> Json:
    owners = [owner_entry(suggestion)]
    metadata: Json = {"name": name, "namespace": suggestion.namespace, "ownerReferences": owners}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
