"""The collector's container: its arguments, its rights, and whether it is a native sidecar."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from katib.api.container_restarts import OWN_FIELDS
from katib.api.types import CollectorKind, SourceSpec, Trial
from katib.cluster.configuration.models import MetricsCollectorConfig
from katib.cluster.injection.settings import (
    InjectionSettings,
    MetricsPath,
    collector_kind,
    http_get,
    marker_path,
)
from katib.errors import invalid
from metrics_collector.pod_settings import (
    DEFAULT_GRACE_SECONDS,
    GIVE_UP_VARIABLE,
    GRACE_VARIABLE,
    HTTP_GET_VARIABLE,
    KIND_VARIABLE,
    MARKERS_VARIABLE,
    NATIVE_VARIABLE,
    POD_UID_VARIABLE,
    PROGRAM_RESTART_VARIABLE,
    RESTART_VARIABLE,
)

LOGGER_NAME = "metrics-logger-and-collector"
COLLECTOR_NAME = "metrics-collector"

_IDENTITY = ("runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile", "seLinuxOptions")


def collector_arguments(trial: Trial, path: MetricsPath | None, settings: InjectionSettings) -> list[str]:
    """Return the arguments that every Katib collector understands.

    Raises:
        InvalidError: The trial has no objective, or rules without a service to report an early stop to.
    """
    objective = trial.spec.objective
    if objective is None:
        raise invalid("spec.objective", "the trial has none", "give the metric to optimize", "objective-missing")
    kind, source = collector_kind(trial), trial.spec.metrics_collector.source
    entry = settings.collectors.get(kind)
    arguments = ["-t", trial.name, "-m", ";".join(objective.metric_names), "-o-type", objective.type]
    arguments += ["-s-db", settings.db_manager_address]
    if path is not None:
        arguments += ["-path", path.path]
    arguments += _reading(kind, source)
    if entry is not None and entry.wait_all_processes is not None:
        arguments += ["-w", "true" if entry.wait_all_processes else "false"]
    arguments += _stopping(trial, settings)
    return arguments


def collector_container(
    pod: Mapping[str, Any],
    primary: Mapping[str, Any],
    trial: Trial,
    path: MetricsPath | None,
    settings: InjectionSettings,
) -> dict[str, Any]:
    """Return the container that collects metrics of the primary container, without its volume mounts.

    Raises:
        InvalidError: The KatibConfig has no collector of this kind; see also `collector_arguments`.
    """
    kind = collector_kind(trial)
    entry = settings.collectors.get(kind)
    if entry is None:
        remedy = f"add an entry of kind {kind} to runtime.metricsCollectors of the KatibConfig"
        where = "spec.metricsCollectorSpec.collector.kind"
        raise invalid(where, f"{kind} has no collector here", remedy, "collector-not-configured")
    container: dict[str, Any] = {
        "name": LOGGER_NAME if kind in {CollectorKind.STDOUT, CollectorKind.FILE} else COLLECTOR_NAME,
        "image": entry.image,
        "imagePullPolicy": entry.image_pull_policy,
        "resources": entry.resources.complete(),
        "args": collector_arguments(trial, path, settings),
        "env": _environment(pod, primary, trial, entry, native=is_native(trial, settings)),
        "securityContext": _security_context(pod, primary, trial, copy=settings.inject_security_context),
    }
    if is_native(trial, settings):
        container["restartPolicy"] = "Always"
    return container


def is_native(trial: Trial, settings: InjectionSettings) -> bool:
    """Return whether the collector runs as a native sidecar: an init container that stays."""
    entry = settings.collectors.get(collector_kind(trial))
    return entry is not None and entry.native_sidecar


def grace_seconds(pod: Mapping[str, Any]) -> float:
    """Return how long a pod has between SIGTERM and SIGKILL."""
    seconds = pod["spec"].get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE_SECONDS if seconds is None else seconds


def _reading(kind: str, source: SourceSpec | None) -> Iterator[str]:
    if source is not None and source.filter is not None and source.filter.metrics_format:
        yield from ("-f", ";".join(source.filter.metrics_format))
    if kind == CollectorKind.STDOUT:
        yield from ("-format", "TEXT")
    elif kind == CollectorKind.FILE and source is not None and source.file_system_path is not None:
        yield from ("-format", source.file_system_path.format)


def _stopping(trial: Trial, settings: InjectionSettings) -> Iterator[str]:
    rules = trial.spec.early_stopping_rules
    if not rules:
        return
    if not settings.early_stopping_address:
        cause = f"trial {trial.name} has rules, and its experiment no early stopping service to tell of a stop"
        remedy = "look at the experiment's Suggestion, whose service is missing"
        raise invalid("spec.earlyStoppingRules", cause, remedy, "early-stopping-service")
    for rule in rules:
        yield from ("-stop-rule", f"{rule.name};{rule.value};{rule.comparison};{rule.start_step}")
    yield from ("-s-earlystop", settings.early_stopping_address)


def _environment(
    pod: Mapping[str, Any], primary: Mapping[str, Any], trial: Trial, entry: MetricsCollectorConfig, *, native: bool
) -> list[dict[str, Any]]:
    """Return what the collector has to know about its pod and cannot see from inside, and no flag of Katib's says."""
    kind = collector_kind(trial)
    variables = {
        RESTART_VARIABLE: pod["spec"].get("restartPolicy") or "Always",
        GRACE_VARIABLE: str(grace_seconds(pod)),
        NATIVE_VARIABLE: "true" if native else "false",
        GIVE_UP_VARIABLE: f"{entry.patience_seconds:g}",
    }
    if own := {name: primary[name] for name in OWN_FIELDS if primary.get(name)}:
        variables[PROGRAM_RESTART_VARIABLE] = json.dumps(own, separators=(",", ":"))
    if kind not in {CollectorKind.STDOUT, CollectorKind.FILE}:
        variables[KIND_VARIABLE] = kind
    if kind == CollectorKind.PROMETHEUS_METRIC:
        variables[HTTP_GET_VARIABLE] = json.dumps(http_get(trial), separators=(",", ":"))
        if (markers := marker_path(trial, primary)) is not None:
            variables[MARKERS_VARIABLE] = markers.directory
    uid = {"name": POD_UID_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    return [*({"name": name, "value": value} for name, value in variables.items()), uid]


def _security_context(
    pod: Mapping[str, Any], primary: Mapping[str, Any], trial: Trial, *, copy: bool
) -> dict[str, Any]:
    """Return a security context that the "restricted" Pod Security level allows wherever it allows the pod.

    To end processes of the primary container the collector must run as the same user: a user named there is taken over,
    one named for the pod holds for both. Where none is named and root is not refused, the program runs as whomever its
    image says, and the collector of a trial with rules is root with just the rights to end it and leave the reason.
    """
    given = primary.get("securityContext") or {}
    if copy and given:
        return dict(given)
    of_pod = pod["spec"].get("securityContext") or {}
    context: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        **{name: given[name] for name in _IDENTITY if name in given},
    }
    named = {**of_pod, **given}
    if trial.spec.early_stopping_rules and "runAsUser" not in named and not named.get("runAsNonRoot"):
        context["runAsUser"] = 0
        context["capabilities"] = {"drop": ["ALL"], "add": ["DAC_OVERRIDE", "KILL"]}
    if "seccompProfile" not in named:
        context["seccompProfile"] = {"type": "RuntimeDefault"}
    return context
